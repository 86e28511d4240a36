"""The keys that a dictionary has at one moment, copied in parts: copying all takes too long at once.

    dictionary   k1 k2 k3 | k4 k5 k6 | k7 k8 k9 | ...
                 _part      _parts     _rest: not copied yet

Values may be replaced meanwhile. Before a key is added or removed, copy_all() must be called: both invalidate
the iterator over the rest. When a part is begun, four more are copied: after a quarter of the walk all are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import cython

PART_KEYS = 1024  # a million keys are so few lists that they start no garbage collection
PARTS_AHEAD = 4  # copied when a part is begun, in about 0.05 ms


@cython.final
@cython.cclass
class KeyWalk:
    """Walks over the keys once, in their order."""

    _part: list[bytes]
    _at: cython.Py_ssize_t  # of the next key in _part
    _parts: Any  # a deque
    _rest: Iterator[bytes] | None  # None: all are copied
    _is_usable: cython.bint  # not while keys are copied, so not after a copy that failed; not after close()

    def __init__(self, keys: Iterable[bytes]) -> None:
        """Keys: a dictionary, or any other iterable."""
        self._part = []
        self._at = 0
        self._parts = deque()
        self._rest = iter(keys)
        self._is_usable = True

    @cython.ccall
    def next(self) -> bytes | None:
        """Return the next key; None after the last one.

        Raises RuntimeError: after close(); or if there was no memory for a copy, so that keys are lost.
        """
        if not self._is_usable:
            raise RuntimeError("the walk over the keys has ended early")
        if self._at == len(self._part):
            for _ in range(PARTS_AHEAD):
                if self._rest is not None:
                    self._copy(PART_KEYS)
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
        if self._rest is not None:
            self._copy(None)

    @cython.ccall
    def close(self) -> cython.void:
        """Free the keys."""
        self._is_usable = False
        self._rest = None
        self._parts.clear()
        self._part = []

    @cython.cfunc
    def _copy(self, keys_max: Any) -> cython.void:
        """Copy the next keys; all that are left if keys_max is None."""
        rest: Iterable[bytes] = self._rest or ()
        self._is_usable = False
        part: list[bytes] = list(rest if keys_max is None else islice(rest, keys_max))
        if part:
            self._parts.append(part)
        if keys_max is None or len(part) < keys_max:
            self._rest = None
        self._is_usable = True
