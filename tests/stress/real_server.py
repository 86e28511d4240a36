"""A server as a process of its own, seen from outside: its answers, its log, its memory and descriptors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import headrace
from support.speaking import SECONDS_MAX, Client
from support.waiting import wait_until

LONG = os.environ.get("HEADRACE_LONG") == "1"  # the same tests, for minutes in place of seconds


# What the program is started by when its heap is to be asked about: SIGUSR2 has it write how many blocks the
# interpreter holds, and how many bytes the C library has given out.
LOOKED_INTO = """
import ctypes, gc, os, signal, sys
from headrace.cli.main import main
class Heap(ctypes.Structure):
    _fields_ = [(f"f{n}", ctypes.c_size_t) for n in range(10)]
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Heap
def tell(number, frame):
    gc.collect()
    path = os.environ["HEAP_FILE"]
    with open(path + ".new", "w") as file:
        print(sys.getallocatedblocks(), mallinfo().f7 + mallinfo().f4, file=file)
    os.replace(path + ".new", path)
signal.signal(signal.SIGUSR2, tell)
sys.exit(main(sys.argv[1:]))
"""


class RealServer:
    """`headrace serve` on a directory and a free port; its log is the file `log` there."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        preexec_fn: Callable[[], None] | None = None,
        looked_into: bool = False,
        **environment: str,
    ) -> None:
        self.directory = directory
        self.log_file = directory / "log"
        port_file = directory / "port"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, *(["-c", LOOKED_INTO] if looked_into else ["-m", "headrace"])]
        command += ["serve", "--port", "free", "--bind", "127.0.0.1"]
        command += ["--dir", str(directory), "--port-file", str(port_file), *arguments]
        self.heap_file = directory / "heap"
        here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
        here |= {"HEAP_FILE": str(self.heap_file)} | environment
        with self.log_file.open("ab") as log:
            self.child = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=log, env=here, preexec_fn=preexec_fn
            )
        self.clients: list[Client] = []
        wait_until(lambda: port_file.exists() or self.child.poll() is not None)
        assert self.child.poll() is None, self.log_file.read_text()
        self.pid = self.child.pid
        self.port = int(port_file.read_text())

    def client(self, **options: int) -> Client:
        """A client, closed with the server."""
        self.clients.append(Client.to(self.port, **options))
        return self.clients[-1]

    def rss(self) -> int:
        """Bytes of the process in RAM."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def allocated(self) -> tuple[int, int]:
        """Objects of the interpreter's, and bytes of the C library's, that are in use; if `looked_into`."""
        self.heap_file.unlink(missing_ok=True)
        self.child.send_signal(signal.SIGUSR2)
        wait_until(self.heap_file.exists)
        objects, held = self.heap_file.read_text().split()
        return int(objects), int(held)

    def descriptors(self) -> int:
        """How many descriptors it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_seconds(self) -> float:
        """Processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> list[str]:
        """Its log, line by line."""
        return self.log_file.read_text(errors="replace").splitlines()

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def end(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        for client in self.clients:
            client.close()
        self.clients.clear()
        if self.child.poll() is None:
            self.child.send_signal(number)
        return self.child.wait(SECONDS_MAX)
