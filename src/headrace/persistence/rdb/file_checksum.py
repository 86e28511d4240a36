"""Compute the CRC-64 of a large file in a second thread while the first one parses it.

    thread 1   read piece ─ parse ─ read piece ─ parse ─ ...                  ─ trailer ─ compare
    thread 2   read 256 KiB ─ CRC ─ read 256 KiB ─ CRC ─ ... size - 8 bytes ──────────────┘

The second thread works without the GIL and reads the file itself, so the two share nothing until the end.
"""

from __future__ import annotations

import os
import threading

import cython

from headrace import system
from headrace.errors import copy_error
from headrace.persistence import crc64

PIECE_BYTES = cython.declare(cython.Py_ssize_t, 1 << 18)
THREAD_FILE_BYTES_MIN = cython.declare(cython.longlong, 8 << 20)  # a smaller file is checked by its parser
TRAILER_BYTES = cython.declare(cython.longlong, 8)


class FileChecksum:
    """Computes the CRC-64 of a file, without the trailer at its end, in a thread."""

    def __init__(self, descriptor: int, size: int) -> None:
        """Start the thread.

        Args:
            descriptor: of the file; it must stay open until crc_up_to() has returned.
            size: of the file, in bytes.

        Raises:
            OSError, RuntimeError: if there can be no other descriptor or thread.
        """
        self._descriptor = descriptor
        self._end = size - TRAILER_BYTES
        self._crc = 0
        self._error: BaseException | None = None
        own = os.dup(descriptor)  # the load may fail and close the other one
        self._thread = threading.Thread(target=self._run, args=(own,), name="headrace-checksum", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            os.close(own)
            raise

    def crc_up_to(self, end: int) -> int:
        """Wait for the thread, and return the CRC-64 of the first `end` bytes.

        If the trailer does not begin at `end`, the CRC-64 is computed here, from the start.

        Raises:
            OSError: if the file cannot be read, or has become shorter.
        """
        self._thread.join()
        if end != self._end:
            return crc_of_file(self._descriptor, end)
        if self._error is not None:
            raise copy_error(self._error)
        return self._crc

    def _run(self, descriptor: int) -> None:
        try:
            self._crc = crc_of_file(descriptor, self._end)
        except OSError as error:
            self._error = copy_error(error)
        finally:
            os.close(descriptor)


def start_checksum(source: object) -> FileChecksum | None:
    """Start computing the checksum of a source in a thread.

    Returns None if the source is not a large file, or there is one core only, or no thread can be started.
    """
    descriptor: int = getattr(source, "descriptor", -1)
    if descriptor < 0 or len(os.sched_getaffinity(0)) < 2:
        return None
    size = os.fstat(descriptor).st_size
    try:
        return FileChecksum(descriptor, size) if size >= THREAD_FILE_BYTES_MIN else None
    except (OSError, RuntimeError):  # no more descriptors or threads
        return None


@cython.ccall
def crc_of_file(descriptor: cython.int, end: cython.longlong) -> cython.ulonglong:
    """Return the CRC-64 of the first `end` bytes of a file. Raises OSError."""
    buf: bytearray = bytearray(PIECE_BYTES)
    p: cython.p_uchar = buf
    tables: cython.p_const_uchar = crc64.TABLES
    crc: cython.ulonglong = 0
    at: cython.longlong = 0
    n: cython.Py_ssize_t = 1
    with cython.nogil:
        while at < end and n > 0:
            n = min(PIECE_BYTES, end - at)
            n = system.read_at(descriptor, p, n, at)
            if n > 0:
                crc = crc64.update_with_tables(tables, crc, p, 0, n)
                at += n
    if at < end:
        raise OSError(-n if n < 0 else 0, os.strerror(-n) if n < 0 else "the file has become shorter")
    return crc
