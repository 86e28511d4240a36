"""Servers for the tests: a real redis-server, and headrace."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from support.redis_programs import installed_redis
from support.redis_server import free_port
from support.waiting import answers, wait_until


def start_server(kind: str, port: int, cwd: pathlib.Path, *more: str) -> subprocess.Popen[bytes]:
    """Start a server. more: its settings, instead of no persistence."""
    words = [sys.executable, "-m", "headrace", "serve", "--port", str(port)]
    if kind == "redis":
        words = [installed_redis(), "--port", str(port), "--save", "", "--hz", "200"]
    words += more or ("--appendonly", "no")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # the same modules, from another folder
    process = subprocess.Popen(words, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with redis.Redis(port=port) as client:
        wait_until(lambda: answers(client) or process.poll() is not None, kind)
    assert process.poll() is None, f"{kind} did not start"
    return process


class StreamServer:
    """A running server, with methods to fill it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"redis://127.0.0.1:{port}"
        self.client = redis.Redis(port=port)

    def add(self, stream: str | bytes, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Add entries, each an ID and its fields."""
        pipe = self.client.pipeline(transaction=False)
        for entry_id, fields in entries:
            pipe.xadd(stream, dict(fields), id=entry_id)
        pipe.execute()

    def fill(self, stream: str, count: int, first: int = 0) -> None:
        """Add entries numbered from first, with IDs from 1000000-0 on: n, its text, its half."""
        for start in range(first, first + count, 2000):
            pipe = self.client.pipeline(transaction=False)
            for n in range(start, min(start + 2000, first + count)):
                pipe.xadd(stream, {"n": n, "name": f"n{n}", "half": n / 2}, id=f"{1_000_000 + n}-0")
            pipe.execute()


@contextmanager
def running(kind: str, cwd: pathlib.Path) -> Iterator[StreamServer]:
    """Run a server on a free port within this context."""
    port = free_port()
    process = start_server(kind, port, cwd)
    try:
        yield StreamServer(port)
    finally:
        process.terminate()
        process.wait(10)
