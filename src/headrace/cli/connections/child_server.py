"""Run a temporary server as a child process on a free port."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import HeadraceError

START_SECONDS = 20.0
STOP_SECONDS = 5.0


@contextmanager
def temporary_server(*options: str) -> Iterator[str]:
    """Run `headrace serve` with these options and yield its URL; at the end stop it and remove its files."""
    with tempfile.TemporaryDirectory(prefix="headrace-server-") as directory:
        log = Path(directory) / "server.log"
        port_file = Path(directory) / "port"
        command = [sys.executable, "-m", "headrace", "serve", "--port", "free", "--port-file", str(port_file)]
        command += ["--bind", "127.0.0.1", "--dir", directory, "--save", "", "--appendonly", "no", *options]
        with log.open("wb") as output:
            # In a process group of its own, so that Ctrl-C does not stop it before this program does.
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
            )
        try:
            wait_until_listening(server, port_file, log)
            yield f"redis://127.0.0.1:{port_file.read_text().strip()}"
        finally:
            stop_process(server)


def wait_until_listening(server: subprocess.Popen[bytes], port_file: Path, log: Path) -> None:
    """Wait until the server has written its port. HeadraceError with the end of its log if it fails."""
    deadline = time.monotonic() + START_SECONDS
    while not port_file.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise HeadraceError(f"the server did not start: {last_log_line(log)}")
        time.sleep(0.02)


def last_log_line(log: Path) -> str:
    """Return the last line of the server's log."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("headrace: ") if lines else "its log is empty"


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process, and kill it if it does not exit."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
