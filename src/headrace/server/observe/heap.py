"""The C library's heap: on large pages, with free memory returned to the system.

A fork copies the system's table of all pages while every client waits: the more pages, the longer it takes.
With pages of 2 MiB instead of 4 KiB it takes a tenth to a thirtieth of the time. The system provides large
pages where an address range of that size exists when it is first touched, so the range is reserved before
there is data:

    program | heap, 12 MiB | ... address space, of which nothing is memory yet ... |        one range, "large"
                           ^ everything is allocated from here on

After a fork, a write to a large page copies 4 KiB of it; before Linux 5.8 it copied all 2 MiB. There is a
cost: a large page that is touched first is cleared completely. That takes as long as some hundred commands,
or milliseconds if a hypervisor has to find it first. So it is configurable.

The C library keeps freed memory for later use. After many clients have disconnected that can be much more
than the data: RSS stays high, and looks like a memory leak.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

LIBC = ctypes.CDLL(None)
COLLAPSE_MIN = 500  # so many fewer clients justify a scan of the whole heap

LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
STRICT = "2"  # address space counts as memory then
LARGE_BYTES = 2 << 20
LINUX = (5, 8)
RESERVED_SHARE = 0.75  # of the machine's memory; more might be rejected
MMAP_BYTES = 4 << 20  # larger blocks are mapped separately, and unmapped when freed
# Of malloc.h, sys/mman.h and linux/prctl.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
M_MMAP_MAX_USUAL = 65536
MADV_HUGEPAGE = 14
PR_SET_THP_DISABLE = 41


class Reserved:
    """Whether the heap was put on large pages."""

    done = False


def use_large_pages() -> bool:
    """Put later allocations on large pages, if the system supports it; return whether it does."""
    Reserved.done = has_large_pages() and _reserve()
    return Reserved.done


def disable_large_pages() -> None:
    """Disable large pages for this process."""
    if hasattr(LIBC, "prctl"):
        LIBC.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def has_large_pages() -> bool:
    """Return whether large pages are available here, and good for a process that forks."""
    if not hasattr(LIBC, "gnu_get_libc_version") or hasattr(LIBC, "__asan_init"):
        return False
    with suppress(OSError, ValueError):
        release = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2]))
        size = int((LARGE_PAGES / "hpage_pmd_size").read_text())
        never = "[never]" in (LARGE_PAGES / "enabled").read_text()
        strict = OVERCOMMIT.read_text().strip() == STRICT
        return release >= LINUX and size == LARGE_BYTES and not never and not strict
    return False


def _reserve() -> bool:
    """Reserve most of the machine's memory for the heap, without touching it; return False if that fails."""
    LIBC.malloc.restype = LIBC.sbrk.restype = ctypes.c_void_p
    LIBC.malloc.argtypes = (ctypes.c_size_t,)
    LIBC.free.argtypes = (ctypes.c_void_p,)
    LIBC.sbrk.argtypes = (ctypes.c_ssize_t,)
    LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    size = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * RESERVED_SHARE)
    LIBC.mallopt(M_MMAP_MAX, 0)  # allocate at the end of the heap, not as a separate mapping
    begin = LIBC.malloc(size)
    LIBC.mallopt(M_MMAP_MAX, M_MMAP_MAX_USUAL)
    LIBC.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)
    if begin is None:
        return False
    LIBC.mallopt(M_TRIM_THRESHOLD, -1)  # what is freed at the end stays, until release_free_memory()
    first = -(-begin // LARGE_BYTES) * LARGE_BYTES
    on_heap = begin + size <= LIBC.sbrk(0)
    if on_heap:
        LIBC.madvise(first, begin + size - first, MADV_HUGEPAGE)
    LIBC.free(begin)  # now it is free space at the end of the heap
    return bool(on_heap)


def release_free_memory() -> None:
    """Return all free pages to the system, if the C library can."""
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)
    if Reserved.done:  # the reserved range was returned, too
        use_large_pages()


class ClientPeak:
    """Detects that most clients have disconnected."""

    def __init__(self) -> None:
        self.most = 0

    def has_collapsed(self, clients: int) -> bool:
        """Return whether most clients have disconnected since this was last True."""
        self.most = max(self.most, clients)
        if self.most - clients < COLLAPSE_MIN or clients > self.most // 2:
            return False
        self.most = clients
        return True
