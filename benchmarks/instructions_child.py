"""Runs under callgrind, started by instructions.py: drives a path through a server of this process.

A call of getppid ends a part of callgrind's counting, so it is called before and after what counts:

    prepare, warm up | getppid | the counted requests | getppid

The server is the whole one, but for the wait and the real clock: its turns are run one by one, on a time that
moves by a millisecond a turn. Nothing depends on the real time or on chance, so that two runs count the same.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
from collections.abc import Sequence

from benchmarks.paths import BY_NAME, COUNTED, FIRST_MS, WARM_UP, Path
from headrace.engine.clock import SettableClock
from headrace.resp.replies import INCOMPLETE, ReplyParser
from headrace.server import main
from headrace.server.config.config import Config

CHUNK = 1000  # requests of a preparation, sent at once


class Driver:
    """A server without sockets of its own, and one connection to it."""

    def __init__(self, directory: str, logged: bool) -> None:
        config = Config()
        log = ("--appendonly", "yes", "--appendfsync", "no") if logged else ("--appendonly", "no")
        quiet = ("--slowlog-log-slower-than", "1000000000")  # under callgrind some requests are slow
        config.read_arguments(["--port", "free", "--save", "", "--dir", directory, *log, *quiet])
        self.clock = SettableClock(FIRST_MS + 1_000_000_000)
        main.RealClock = lambda: self.clock  # type: ignore
        self.server = main.Server(config)
        self.server.open()
        self.loop = self.server.loop
        self.client, served = socket.socketpair()
        self.client.setblocking(False)
        served.setblocking(False)
        self.loop.add_connection(served.detach(), b"", b"")
        self.parser = ReplyParser()

    def exchange(self, requests: Sequence[bytes]) -> None:
        """Send them all at once and run turns until all are answered; none may be refused."""
        left = len(requests)
        unsent = memoryview(b"".join(requests))
        while left:
            if unsent:
                unsent = unsent[self.client.send(unsent[: 1 << 16]) :]
            self.clock.advance(1)
            self.loop.run_once(0)
            try:
                self.parser.feed(self.client.recv(1 << 20))
            except BlockingIOError:
                continue
            while (reply := self.parser.next()) is not INCOMPLETE:
                left -= 1
                if isinstance(reply, Exception):
                    raise reply

    def close(self) -> None:
        self.client.close()
        self.server.close()


def run(path: Path) -> None:
    """Count the requests of a path, after some to warm up."""
    depth, warm, total = path.depth, WARM_UP, WARM_UP + COUNTED
    requests = [path.request(i, total) for i in range(total)]
    with tempfile.TemporaryDirectory() as directory:
        driver = Driver(directory, path.logged)
        preparation = list(path.prepare(total))
        for i in range(0, len(preparation), CHUNK):
            driver.exchange(preparation[i : i + CHUNK])
        batches = [requests[i : i + depth] for i in range(0, total, depth)]
        for batch in batches[: warm // depth]:
            driver.exchange(batch)
        gc.collect()
        gc.freeze()  # as the server does before its first turn
        os.getppid()
        for batch in batches[warm // depth :]:
            driver.exchange(batch)
        os.getppid()
        driver.close()


if __name__ == "__main__":
    run(BY_NAME[sys.argv[1]])
