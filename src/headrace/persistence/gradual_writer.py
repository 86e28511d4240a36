"""Write a large file so that its data reaches the disk while it is written, and not all at its sync.

A sync of a gigabyte that is only in memory takes seconds, and other files on the same disk wait with it.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.persistence.aof.manifest import write_all
from headrace.persistence.data_directory import File

WRITEBACK_BYTES = 1 << 20  # a disk of 500 MB/s takes 2 ms for them: so long may the sync of another file wait


def gradual_writer(file: File) -> Callable[[bytes | memoryview], None]:
    """Return a function that writes all of its argument to the file; it waits while the disk is too slow."""
    waiting = 0

    def write(data: bytes | memoryview) -> None:
        nonlocal waiting
        for start in range(0, len(data), WRITEBACK_BYTES):
            with memoryview(data)[start : start + WRITEBACK_BYTES] as part:
                write_all(file, part)
                waiting += len(part)
            if waiting >= WRITEBACK_BYTES:
                waiting = 0
                file.start_writeback()

    return write
