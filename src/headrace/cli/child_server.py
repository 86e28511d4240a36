"""A server of one's own: a child process on a free port that ends with the block."""

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
def own_server() -> Iterator[str]:
    """Runs `headrace serve` and gives its URL; at the end the process is gone and so are its files."""
    with tempfile.TemporaryDirectory(prefix="headrace-server-") as directory:
        log = Path(directory) / "server.log"
        port_file = Path(directory) / "port"
        command = [sys.executable, "-m", "headrace", "serve", "--port", "free", "--port-file", str(port_file)]
        command += ["--bind", "127.0.0.1", "--dir", directory, "--save", "", "--appendonly", "no"]
        with log.open("wb") as output:
            # A process group of its own: Ctrl-C on the terminal is ours, and then we stop the server.
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
            )
        try:
            wait_until_it_listens(server, port_file, log)
            yield f"redis://127.0.0.1:{port_file.read_text().strip()}"
        finally:
            end(server)


def wait_until_it_listens(server: subprocess.Popen[bytes], port_file: Path, log: Path) -> None:
    """Returns when the server has written its port; HeadraceError with its last words if it cannot."""
    deadline = time.monotonic() + START_SECONDS
    while not port_file.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise HeadraceError(f"the server did not start: {last_words(log)}")
        time.sleep(0.02)


def last_words(log: Path) -> str:
    """The last line of a log."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("headrace: ") if lines else "it said nothing"


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks the process to end, and ends it if it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
