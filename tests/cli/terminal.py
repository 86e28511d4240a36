"""The program in a pseudo-terminal of a given width, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

from support.waiting import SECONDS_MAX


def in_terminal(*words: str, columns: int = 100, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a command of the program in a terminal; return its exit code and all that it printed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-m", "headrace", *words]
    without = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    settings = without | {"TERM": "xterm-256color"} | (env or {})
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=settings) as process:
        os.close(theirs)
        output = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # EIO: the program has ended
                break
            if not piece:
                break
            output += piece
        process.wait(SECONDS_MAX)
    os.close(ours)
    return process.returncode, output.decode(errors="surrogateescape").replace("\r\n", "\n")
