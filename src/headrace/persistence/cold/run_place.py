"""The location of a cold run (stored nodes of a stream) on disk."""

from __future__ import annotations

from typing import Any

import cython


@cython.final
@cython.no_gc
@cython.cclass
class RunPlace:
    """Where a run is in a cold file. As long as it exists, the file is kept and the run counts as live.

    Attributes:
        file: the ColdFile.
        offset: where the run begins in the file, in bytes.
        size: its bytes on disk.
        checksum: the XXH3-64 of these bytes.
    """

    file: Any
    offset: cython.longlong
    size: cython.longlong
    checksum: cython.ulonglong

    def __init__(self, file: Any, offset: cython.longlong, size: cython.longlong, checksum: int) -> None:
        self.file = file
        self.offset = offset
        self.size = size
        self.checksum = checksum
        file.live_bytes += size

    def __dealloc__(self) -> None:
        """Report the size to the file. Runs in the thread that drops the last reference."""
        if self.file is not None:
            self.file.released_sizes.append(self.size)

    def __str__(self) -> str:
        return f"{self.file.path}, at byte {self.offset}"


if not cython.compiled:
    RunPlace.__del__ = RunPlace.__dealloc__  # type: ignore[attr-defined]
