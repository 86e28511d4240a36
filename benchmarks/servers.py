"""Start a server on a free port, pinned to a core or not, and read its CPU time and memory."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SERVER_CORE = 0
ONE_CORE = frozenset({SERVER_CORE})
ALL_CORES = frozenset(range(os.cpu_count() or 1))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def load_cores() -> set[int]:
    """Return the cores for the load: all but the server's, or that one if there is no other."""
    return set(range(os.cpu_count() or 1)) - {SERVER_CORE} or {SERVER_CORE}


IN_MEMORY = ("--save", "", "--appendonly", "no")


def prepare_process(cores: Collection[int]) -> None:
    """Pin the server to these cores, and raise its limit of open files."""
    os.sched_setaffinity(0, cores)
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


@dataclass
class Server:
    """A server that runs within `with Server.headrace() as server:`.

    Without directives it stores nothing on disk. It starts with the files of the directory `seed`, if given.
    """

    name: str
    command: list[str]
    port: int
    seed: Path | None = None
    cores: Collection[int] = ONE_CORE

    @classmethod
    def headrace(cls, *directives: str, seed: Path | None = None, cores: Collection[int] = ONE_CORE) -> Self:
        port = free_port()
        command = [sys.executable, "-m", "headrace", "serve", "--port", str(port)]
        return cls("headrace", [*command, *(directives or IN_MEMORY)], port, seed, cores)

    @classmethod
    def redis(cls, *directives: str, seed: Path | None = None, cores: Collection[int] = ONE_CORE) -> Self:
        port = free_port()
        program = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
        if program is None:
            raise SystemExit("redis-server was not found: install it, or set REDIS_SERVER to its path")
        return cls("redis", [program, "--port", str(port), *(directives or IN_MEMORY)], port, seed, cores)

    def __enter__(self) -> Self:
        self._dir = tempfile.TemporaryDirectory()
        if self.seed is not None:
            # Hard links suffice: the server writes only new files.
            shutil.copytree(self.seed, self._dir.name, dirs_exist_ok=True, copy_function=os.link)
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            self.command,
            cwd=self._dir.name,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: prepare_process(self.cores),
        )
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise SystemExit(f"{self.name} did not start: {' '.join(self.command)}") from None
                time.sleep(0.002)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._dir.cleanup()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def directory(self) -> Path:
        """Where it stores its files."""
        return Path(self._dir.name)

    def cpu_s(self) -> float:
        """Return the user and system time of all threads so far, in seconds."""
        clock = ~self._process.pid << 3 | 2  # Linux's number of a process's CPU clock: clock_getcpuclockid(3)
        return time.clock_gettime(clock)

    def cpu_with_children_s(self) -> float:
        """Return cpu_s() plus that of child processes that have ended, which is counted in clock ticks."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        children = int(fields[13]) + int(fields[14])  # cutime and cstime: proc(5), whose first fields are cut
        return self.cpu_s() + children / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    def version(self) -> str:
        import redis

        info = redis.Redis(port=self.port).info("server")
        return f"{self.name} {info.get('headrace_version', info['redis_version'])}"
