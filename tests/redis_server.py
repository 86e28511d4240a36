"""A real redis-server of a test's own: on a free port, with the options it is given, and gone afterwards."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import redis

from redis_programs import INSTALLED, redis_program, without_sanitizers
from waiting import answers, wait_until


def free_port() -> int:
    """One that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
