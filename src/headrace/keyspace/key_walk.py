"""The keys that a dictionary has at one moment, copied in parts: copying all takes too long at once.

    dictionary   k1 k2 k3 | k4 k5 k6 | k7 k8 k9 | ...
                 _part      _parts     _rest: not copied yet

Values may be replaced meanwhile. Before a key is added or removed, copy_all() must be called: both invalidate
the iterator over the rest. When a part is begun, eight more are copied, so soon nothing is left to copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import cython

PART_KEYS = 256
PARTS_AHEAD = 8  # copied when a part is begun, in about 0.02 ms


@cython.final
@cython.cclass
class KeyWalk:
    """Walks over the keys once, in their order."""

    _part: list[bytes]
    _at: cython.Py_ssize_t  # of the next key in _part
    _parts: Any  # a deque
    _rest: Iterator[bytes] | None  # None: all are copied

    def __init__(self, keys: Iterable[bytes]) -> None:
        """Keys: a dictionary, or any other iterable."""
        self._part = []
        self._at = 0
        self._parts = deque()
        self._rest = iter(keys)

    @cython.ccall
    def next(self) -> bytes | None:
        """Return the next key; None after the last one."""
        if self._at == len(self._part):
            for _ in range(PARTS_AHEAD):
                self._copy_part()
            if not self._parts:
                return None
            self._part = self._parts.popleft()
            self._at = 0
        key: bytes = self._part[self._at]
        self._at += 1
        return key

    @cython.ccall
    def copy_all(self) -> cython.void:
        """Copy the keys that are left: the dictionary is about to get a key or to lose one."""
        while self._rest is not None:
            self._copy_part()

    @cython.cfunc
    def _copy_part(self) -> cython.void:
        if self._rest is None:
            return
        part: list[bytes] = list(islice(self._rest, PART_KEYS))
        if part:
            self._parts.append(part)
        if len(part) < PART_KEYS:
            self._rest = None
