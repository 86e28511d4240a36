"""Run a hot path through a server in this process, under callgrind; started by instructions.py.

Each call of getppid makes callgrind write a dump, so it is called before and after the counted requests:

    prepare, warm up | getppid | the counted requests | getppid

The server is complete except for its waits and its clock: its turns are run one by one, and each advances the
time by a millisecond. Nothing depends on real time or on chance, so two runs have the same count.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
from collections.abc import Sequence

from benchmarks.hot_paths import COUNTED, FIRST_MS, PATHS_BY_NAME, WARM_UP, HotPath
from headrace.engine.clock import SettableClock
from headrace.resp.reply_parser import INCOMPLETE, ReplyParser
from headrace.server.config.config import Config
from headrace.server.main import Server

CHUNK = 1000  # requests of a preparation that are sent at once


class Driver:
    """A server without listeners, and one connection to it."""

    def __init__(self, directory: str, logged: bool) -> None:
        config = Config()
        log = ("--appendonly", "yes", "--appendfsync", "no") if logged else ("--appendonly", "no")
        quiet = ("--slowlog-log-slower-than", "1000000000")  # under callgrind some requests are slow
        config.read_arguments(["--port", "free", "--save", "", "--dir", directory, *log, *quiet])
        self.clock = SettableClock(FIRST_MS + 1_000_000_000)
        self.server = Server(config, self.clock)
        self.server.open()
        self.loop = self.server.parts.loop
        self.client, served = socket.socketpair()
        self.client.setblocking(False)
        served.setblocking(False)
        self.loop.add_connection(served.detach(), b"", b"")
        self.parser = ReplyParser()

    def exchange(self, requests: Sequence[bytes]) -> None:
        """Send the requests and run turns until all replies have come. Raise the first error reply."""
        awaited = len(requests)
        unsent = memoryview(b"".join(requests))
        while awaited:
            if unsent:
                unsent = unsent[self.client.send(unsent[: 1 << 16]) :]
            self.clock.advance(1)
            self.loop.run_once(0)
            try:
                self.parser.feed(self.client.recv(1 << 20))
            except BlockingIOError:
                continue
            while (reply := self.parser.next()) is not INCOMPLETE:
                awaited -= 1
                if isinstance(reply, Exception):
                    raise reply

    def close(self) -> None:
        self.client.close()
        self.server.close()


def run(path: HotPath) -> None:
    """Run the counted requests of a path, after its preparation and warm-up."""
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
    run(PATHS_BY_NAME[sys.argv[1]])
