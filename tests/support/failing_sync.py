"""A preloaded C library that makes fsync and fdatasync of another process fail on demand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class FailingSync:
    """Syncs of the processes that get `environment` fail while `control` exists."""

    def __init__(self, folder: Path) -> None:
        library = folder / "failing_sync.so"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
        subprocess.run([*command, "-ldl"], check=True)
        self.control = folder / "fail-sync"
        self.environment = {"LD_PRELOAD": str(library), "FAIL_SYNC_WHILE": str(self.control)}

    def begin(self) -> None:
        """Make every sync from now on fail."""
        self.control.touch()

    def end(self) -> None:
        """Make syncs succeed again."""
        os.unlink(self.control)
