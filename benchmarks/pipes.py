"""Our own load, for what redis-benchmark cannot say: requests that differ, answers that are long.

    scripts   for each connection its batches: bytes, made beforehand, sent one after the other
    run       a batch is sent when the answers to the one before are all there, counted by their bytes

All batches of a connection have answers of one length in all, learned from its first one, which is read
word by word. So the load does little more than two system calls a batch, and long answers cost it nothing.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.load import Sample
from benchmarks.servers import Server, load_cores
from benchmarks.wire import ANSWER_SECONDS_MAX, Wire

BUFFER_BYTES = 1 << 20
Batch = list[bytes]  # requests that are sent at once


class Pipe:
    """One connection and how many bytes of answers it waits for."""

    follows = False  # it does what others tell it, and is done when they are

    def __init__(self, server: Server) -> None:
        self.wire = Wire(server.port)
        self.sock = self.wire.sock
        self.missing = 0

    def go_on(self) -> bool:
        """All answers are there: send more; False when there is nothing more to do."""
        raise NotImplementedError

    def learn(self, batch: Batch) -> int:
        """Send a batch and read the answers, none of which may be an error; how many bytes they are."""
        before = self.wire.received
        self.wire.exchange(batch)
        return self.wire.received - before


class Talker(Pipe):
    """Sends its script, a batch at a time, and notes how long each takes."""

    def __init__(self, server: Server, script: Sequence[Batch], waits_s: list[float]) -> None:
        super().__init__(server)
        self.answer_bytes = self.learn(script[0])
        self.left = iter([b"".join(batch) for batch in script[1:]])
        self.waits_s = waits_s
        self.sent_s = 0.0

    def go_on(self) -> bool:
        now = time.perf_counter()
        if self.sent_s:
            self.waits_s.append(now - self.sent_s)
        data = next(self.left, None)
        if data is None:
            return False
        self.sent_s = now
        self.missing = self.answer_bytes
        self.sock.sendall(data)
        return True


def drive(pipes: Sequence[Pipe]) -> None:
    """Run the pipes until each says that it is done."""
    buffer = bytearray(BUFFER_BYTES)
    by_fd = {pipe.sock.fileno(): pipe for pipe in pipes}
    poller = select.epoll()
    for fd in by_fd:
        poller.register(fd, select.EPOLLIN)
    busy = sum(pipe.go_on() for pipe in pipes if not pipe.follows)
    while busy:
        events = poller.poll(ANSWER_SECONDS_MAX)
        if not events:
            raise TimeoutError("the server owes answers: they are not all of one length, or it hangs")
        for fd, _ in events:
            pipe = by_fd[fd]
            pipe.missing -= pipe.sock.recv_into(buffer)
            if pipe.missing <= 0:
                if pipe.missing < 0:
                    raise ValueError("an answer is longer than the first of its kind")
                busy -= not pipe.go_on()
    poller.close()


def run(server: Server, scripts: Sequence[Sequence[Batch]]) -> Sample:
    """Run all scripts at once, each on a connection of its own."""
    waits_s: list[float] = []
    commands = sum(len(batch) for script in scripts for batch in script[1:])
    with off_the_servers_core():
        pipes = [Talker(server, script, waits_s) for script in scripts]
        return measured(server, pipes, commands, waits_s)


def measured(server: Server, pipes: Sequence[Pipe], commands: int, waits_s: list[float]) -> Sample:
    """Drive the pipes, which send so many commands and note their waits, and say what that was."""
    cpu_s, started = server.cpu_s(), time.perf_counter()
    drive(pipes)
    seconds, cpu_s = time.perf_counter() - started, server.cpu_s() - cpu_s
    for pipe in pipes:
        pipe.wire.close()
    waits_s.sort()
    p50, p99, p999 = (waits_s[int(len(waits_s) * share)] * 1e3 for share in (0.5, 0.99, 0.999))
    return Sample(commands / seconds, p50, p99, p999, cpu_s / commands * 1e6, cpu_s / seconds)


@contextmanager
def off_the_servers_core() -> Iterator[None]:
    """This process, which is the load now, leaves the server's core to it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, load_cores())
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
