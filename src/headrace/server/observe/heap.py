"""The heap of the C library: on large pages, and given back to the system where it is free.

The more pages a process has, the longer a fork takes: it copies what the system knows of each of them, and
everybody waits. On pages of 2 MiB instead of 4 KiB that takes a tenth to a thirtieth of the time. The system
hands them out where an address range of that size is there when it is first touched, so the range is taken
before there is data:

    program | heap, 12 MiB | ... address space, of which nothing is memory yet ... |        one range, "large"
                           ^ all that is allocated from now on

After a fork, who writes to a large page gets a copy of 4 KiB of it; before Linux 5.8 it was one of all 2 MiB.
Not all is gained: a large page that is touched first is cleared whole, which takes as long as some hundred
commands, or milliseconds where a hypervisor has to find it first. So it is done for who asks for it.

The C library keeps what was freed for the next who wants it. After a crowd of clients has gone that can be
much more than all that is left: RSS stays where it was, and an operator looks for a leak.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

LIBC = ctypes.CDLL(None)
COLLAPSE_MIN = 500  # so many clients fewer are worth a look at the whole heap

LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
STRICT = "2"  # address space counts as memory there
LARGE_BYTES = 2 << 20
LINUX = (5, 8)
RESERVED_SHARE = 0.75  # of the machine's memory: more might be refused
MMAP_BYTES = 4 << 20  # larger blocks are ranges of their own, and given back when they are freed
# Of malloc.h, sys/mman.h and linux/prctl.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
M_MMAP_MAX_USUAL = 65536
MADV_HUGEPAGE = 14
PR_SET_THP_DISABLE = 41


class Reserved:
    """Whether the heap was put on large pages."""

    done = False


def use_large_pages() -> bool:
    """Put what is allocated from now on onto large pages, if the system has them for who asks."""
    Reserved.done = has_large_pages() and _reserve()
    return Reserved.done


def disable_large_pages() -> None:
    """No large pages for this process, whatever the system would give it."""
    if hasattr(LIBC, "prctl"):
        LIBC.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def has_large_pages() -> bool:
    """Whether large pages can be had here, and are good for a process that forks."""
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
    """Let the heap grow over most of the machine's memory, without touching it; False if it cannot."""
    LIBC.malloc.restype = LIBC.sbrk.restype = ctypes.c_void_p
    LIBC.malloc.argtypes = (ctypes.c_size_t,)
    LIBC.free.argtypes = (ctypes.c_void_p,)
    LIBC.sbrk.argtypes = (ctypes.c_ssize_t,)
    LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    size = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * RESERVED_SHARE)
    LIBC.mallopt(M_MMAP_MAX, 0)  # at the end of the heap, not in a range of its own
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
    LIBC.free(begin)  # all of it is free room at the end of the heap now
    return bool(on_heap)


def release_free_memory() -> None:
    """Give every free page back; where the C library cannot, nothing happens."""
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)
    if Reserved.done:  # that was given back, too
        use_large_pages()


class ClientPeak:
    """How many clients there have been, to notice when they are gone."""

    def __init__(self) -> None:
        self.most = 0

    def has_collapsed(self, clients: int) -> bool:
        """Whether most of them have, since this was last True."""
        self.most = max(self.most, clients)
        if self.most - clients < COLLAPSE_MIN or clients > self.most // 2:
            return False
        self.most = clients
        return True
