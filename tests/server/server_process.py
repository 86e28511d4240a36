"""A server in a process of its own, which a test can kill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import redis

import headrace
from support.waiting import wait_until

SECONDS_MAX = 30


class Process:
    """A server process on a directory, with `environment` added to the environment of the test."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        preexec_fn: Callable[[], None] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.port_file = directory / "port"
        self.port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "headrace", "serve", "--port", "free", "--bind", "127.0.0.1"]
        command += ["--dir", str(directory), "--port-file", str(self.port_file), *arguments]
        here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent)} | (environment or {})
        self.child = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=PIPE, env=here, preexec_fn=preexec_fn
        )
        wait_until(lambda: self.port_file.exists() or self.child.poll() is not None)
        assert self.child.poll() is None, self.child.stderr.read().decode()
        self.port = int(self.port_file.read_text())

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, decode_responses=True, socket_timeout=SECONDS_MAX)

    def kill(self) -> None:
        self.child.kill()
        self.child.communicate()

    def end(self) -> None:
        self.child.terminate()
        self.child.communicate(timeout=SECONDS_MAX)
