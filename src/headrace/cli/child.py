"""A server of one's own: a child process on a free port that ends with the block."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from headrace.errors import HeadraceError

START_SECONDS = 20.0
STOP_SECONDS = 5.0


@contextmanager
def own_server() -> Iterator[str]:
    """Runs `headrace serve` and gives its URL; at the end the process is gone and so are its files."""
    with tempfile.TemporaryDirectory(prefix="headrace-server-") as directory:
        log = Path(directory) / "server.log"
        port = free_port()
        command = [sys.executable, "-m", "headrace", "serve", "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--dir", directory, "--save", "", "--appendonly", "no"]
        with log.open("wb") as output:
            # A process group of its own: Ctrl-C on the terminal is ours, and then we stop the server.
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
            )
        try:
            wait_until_it_answers(server, port, log)
            yield f"redis://127.0.0.1:{port}"
        finally:
            end(server)


def free_port() -> int:
    """A TCP port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_it_answers(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Returns when the server answers PING; HeadraceError with its last words if it does not come up."""
    deadline = time.monotonic() + START_SECONDS
    with redis.Redis(port=port, socket_connect_timeout=1.0) as client:
        while time.monotonic() < deadline and server.poll() is None:
            try:
                client.ping()
                return
            except redis.RedisError:
                time.sleep(0.05)
    words = log.read_text(errors="replace").strip().splitlines()
    raise HeadraceError(f"the server did not start: {words[-1] if words else 'it said nothing'}")


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks the process to end, and ends it if it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
