"""A real redis-server of a test's own: on a free port, with the options it is given, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import redis

from support.redis_programs import INSTALLED, redis_program, without_sanitizers
from support.waiting import answers, wait_until

# Below the ports that Linux gives to outgoing connections (from 32768): one of those can take a port
# between the moment it is found free and the moment the server listens there.
# Each worker of pytest has 1,000 ports of its own.
FIRST_PORT, PORTS_PER_WORKER, WORKERS = 10_000, 1_000, 20
worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
next_port = random.randrange(PORTS_PER_WORKER)  # another run of the tests on this machine starts elsewhere


def free_port() -> int:
    """Return a port that nobody listens on, another one each time."""
    global next_port
    while True:
        port = FIRST_PORT + worker * PORTS_PER_WORKER + next_port
        next_port = (next_port + 1) % PORTS_PER_WORKER
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


@contextlib.contextmanager
def redis_server(directory: Path | None = None, *options: str, kind: str = INSTALLED) -> Iterator[int]:
    """Its port, once what is in the directory is loaded; it saves nothing and has no log unless told to."""
    program = redis_program(kind)
    port = free_port()
    words = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    words += ["--hz", "200"]  # how often it looks for waits that are over; 10 times a second by itself
    with tempfile.TemporaryDirectory() as elsewhere, tempfile.TemporaryFile("w+") as log:
        words += ["--dir", str(directory or elsewhere), *options]
        process = subprocess.Popen(words, stdout=log, env=without_sanitizers())

        def is_there() -> bool:
            if process.poll() is not None:
                log.seek(0)
                raise AssertionError(f"redis-server ended:\n{log.read()}")
            return answers(client)

        try:
            with redis.Redis(port=port) as client:
                wait_until(is_there, "redis-server")
            yield port
        finally:
            process.terminate()
            process.wait()
