"""Servers of streams for the tests: a real redis-server, and headrace itself."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import time

import redis


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def start_server(kind: str, port: int, cwd: pathlib.Path, *more: str) -> subprocess.Popen[bytes]:
    """more: settings, instead of keeping nothing."""
    words = {
        "redis": ["redis-server", "--port", str(port), "--save", ""],
        "headrace": [sys.executable, "-m", "headrace", "serve", "--port", str(port)],
    }[kind]
    words += more or ("--appendonly", "no")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # what we run on, from another folder
    process = subprocess.Popen(words, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = redis.Redis(port=port)
    for _ in range(200):
        try:
            client.ping()
            return process
        except redis.ConnectionError:
            assert process.poll() is None, f"{kind} did not start"
            time.sleep(0.05)
    process.kill()
    raise AssertionError(f"{kind} does not answer")


class StreamServer:
    """A running server, and shorthands to fill it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"redis://127.0.0.1:{port}"
        self.client = redis.Redis(port=port)

    def fill(self, stream: str, count: int, first: int = 0) -> None:
        """Entries numbered from first, one a millisecond from 1000000 on: n, its text, its half."""
        for start in range(first, first + count, 2000):
            pipe = self.client.pipeline(transaction=False)
            for n in range(start, min(start + 2000, first + count)):
                pipe.xadd(stream, {"n": n, "name": f"n{n}", "half": n / 2}, id=f"{1_000_000 + n}-0")
            pipe.execute()
