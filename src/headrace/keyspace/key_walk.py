"""Walk over the keys that a table has at one moment. They are copied in parts: all at once takes too long.

    parts of the table   k1 k2     | k3 k4      | k5 k6           | k7 k8 | ...
                         walked    | _keys      | _copies         | not copied
                                   | copied     | copied before a |
                                   | when begun | change of it    |

Values may be replaced meanwhile. Before a key is added or removed, before_change() must be called.
"""

from __future__ import annotations

import cython


@cython.final
@cython.cclass
class KeyWalk:
    """Walks once over the keys that a table has now: part by part, each in order of arrival.

    Call before_change() before a key is added or removed.
    """

    _parts: list[dict[bytes, object]]
    _copies: dict[int, list[bytes]]  # by number of the part
    _next_part: cython.Py_ssize_t
    _keys: list[bytes]  # of the part before that
    _at: cython.Py_ssize_t  # of the next key in _keys
    _is_closed: cython.bint

    def __init__(self, parts: list[dict[bytes, object]]) -> None:
        """Prepare a walk over `parts`, which are those of a KeyTable."""
        self._parts = parts.copy()
        self._copies = {}
        self._next_part = 0
        self._keys = []
        self._at = 0
        self._is_closed = False

    @cython.ccall
    def next(self) -> bytes | None:
        """Return the next key; None after the last one. Raises RuntimeError after close()."""
        if self._is_closed:
            raise RuntimeError("the walk over the keys has ended early")
        while self._at == len(self._keys):
            if self._next_part == len(self._parts):
                return None
            self._begin_part()
        key: bytes = self._keys[self._at]
        self._at += 1
        return key

    @cython.ccall
    def before_change(self, part: cython.Py_ssize_t) -> cython.void:
        """Copy the keys of a part of the table: it is about to get a key or to lose one.

        If the table was split meanwhile, the walk continues over the old dictionary, which does not change.
        """
        if self._next_part <= part < len(self._parts) and part not in self._copies:
            self._copies[part] = list(self._parts[part])

    @cython.ccall
    def close(self) -> cython.void:
        """End the walk, and free the keys."""
        self._is_closed = True
        self._parts = []
        self._copies = {}
        self._keys = []

    @cython.cfunc
    def _begin_part(self) -> cython.void:
        keys: list[bytes] | None = self._copies.pop(self._next_part, None)
        self._keys = list(self._parts[self._next_part]) if keys is None else keys
        self._next_part += 1
        self._at = 0
