"""The keys of a database and their values: a dictionary that never takes long to grow.

    up to SPLIT_AT keys  single_part: { key: value, ... }        in order of arrival
    more                 parts:       [ { ... }, { ... }, ... ]  PART_COUNT dictionaries, chosen by hash

A dictionary of a million keys takes 30 ms to grow, because it then moves all of them. Parts grow one by one.
They are not joined again when keys are removed. The hash does not depend on the process, so that the same
requests give the same order of keys everywhere.

SCAN goes over the hashes, from the lowest to the highest. Its cursor is the hash to continue from:

    0                                            cursor        next cursor              2^48
    |  part 0  |  part 1  | ...  |          part n    [.............]      |  ...         |
                                                      the keys with these hashes are returned

So each key that stays is returned exactly once, whatever comes and goes meanwhile. The cursor only rises, so
keys that come do not keep a SCAN from its end. A call returns about as many keys as it was asked for, and
looks at the parts that it passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import cython

from headrace import mem

SPLIT_AT = 1024  # a call of SCAN looks at all of them
PART_COUNT = 1024
PART_SHIFT = cython.declare(cython.int, 54)  # of a 64-bit hash, which leaves the number of a part
CURSOR_SHIFT = cython.declare(cython.int, 16)  # leaves 48 bits, which a float of JavaScript or Lua can hold
CURSOR_COUNT = cython.declare(cython.longlong, 1 << 48)
CURSORS_PER_PART = cython.declare(cython.longlong, 1 << 38)
MULTIPLIER = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _part_of(key: bytes) -> cython.Py_ssize_t:
    """Return the number of the part that has the key."""
    return _hash(key) >> PART_SHIFT


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _hash(key: bytes) -> cython.ulonglong:
    """Return the hash of a key, whose upper bits are the most mixed ones."""
    p: cython.p_const_uchar = key
    n: cython.Py_ssize_t = len(key)
    at: cython.Py_ssize_t = 0
    found: cython.ulonglong = n
    while at + 8 <= n:
        found = ((found ^ mem.u64le(p, at)) * MULTIPLIER) & U64_MAX
        found ^= found >> 32
        at += 8
    while at < n:
        found = ((found ^ p[at]) * MULTIPLIER) & U64_MAX
        at += 1
    return ((found ^ (found >> 32)) * MULTIPLIER) & U64_MAX


@cython.final
@cython.cclass
class KeyTable:
    """A mapping from key to value, which is never None."""

    single_part: dict[bytes, object] | None  # None: there are parts
    parts: list[dict[bytes, object]]  # one, which is `single_part`, or PART_COUNT of them
    count: cython.Py_ssize_t

    def __init__(self) -> None:
        self.single_part = {}
        self.parts = [self.single_part]
        self.count = 0

    @cython.ccall
    def find(self, key: bytes) -> object:
        """Return the value of the key; None if it does not exist."""
        if self.single_part is not None:
            return self.single_part.get(key)
        return self.parts[_part_of(key)].get(key)

    @cython.ccall
    def part_index(self, key: bytes) -> cython.Py_ssize_t:
        """Return the index of the part that has the key, or would have it."""
        return 0 if self.single_part is not None else _part_of(key)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def put(self, key: bytes, value: object, is_new: cython.bint) -> cython.int:
        """Set the value of the key. is_new: the key does not exist yet.

        Returns 0: an int is cheaper to check for errors than void.
        """
        single: dict[bytes, object] | None = self.single_part
        if single is not None:
            single[key] = value
            if is_new:
                self.count += 1
                if self.count > SPLIT_AT:
                    self._split(single)
            return 0
        self.parts[_part_of(key)][key] = value
        if is_new:
            self.count += 1
        return 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def delete(self, key: bytes) -> cython.int:
        """Remove an existing key; return 0. Raises KeyError if it does not exist."""
        del self.parts[0 if self.single_part is not None else _part_of(key)][key]
        self.count -= 1
        return 0

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return the next cursor, 0 at the end, and about `count` keys from the cursor on."""
        if self.count == 0 or cursor >= CURSOR_COUNT:
            return 0, []
        end = min(cursor + -(-CURSOR_COUNT * count // self.count), CURSOR_COUNT)
        return (0 if end == CURSOR_COUNT else end), self._between(cursor, end)

    @cython.cfunc
    def _between(self, first: cython.longlong, end: cython.longlong) -> list[bytes]:
        """Return the keys from one cursor up to another."""
        key: bytes
        place: cython.longlong
        part: dict[bytes, object]
        found: list[bytes] = []
        parts: list[dict[bytes, object]] = self.parts
        if self.single_part is None:
            parts = parts[first // CURSORS_PER_PART : (end - 1) // CURSORS_PER_PART + 1]
        for part in parts:
            for key in part:
                place = _hash(key) >> CURSOR_SHIFT
                if first <= place < end:
                    found.append(key)
        return found

    @cython.ccall
    def key_at(self, index: cython.Py_ssize_t) -> bytes:
        """Return the key at an index, in order of iteration. Raises IndexError if there are fewer keys."""
        part: dict[bytes, object]
        for part in self.parts:
            if index < len(part):
                found: bytes = next(islice(part, index, None))
                return found
            index -= len(part)
        raise IndexError("there are fewer keys")

    @cython.cfunc
    def _split(self, single: dict[bytes, object]) -> cython.void:
        """Distribute the keys to parts. The dictionary stays as it is: a walk may go over it."""
        key: bytes
        parts: list[dict[bytes, object]] = [{} for _ in range(PART_COUNT)]
        for key, value in single.items():
            parts[_part_of(key)][key] = value
        self.parts = parts
        self.single_part = None

    # As a dictionary.

    def __len__(self) -> int:
        return self.count

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self.find(key) is not None

    def __getitem__(self, key: bytes) -> object:
        value = self.find(key)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self.parts)

    def get(self, key: bytes) -> Any:
        """Return the value of the key; None if it does not exist."""
        return self.find(key)

    def keys(self) -> Iterator[bytes]:
        """Return an iterator over the keys."""
        return iter(self)

    def values(self) -> Iterator[object]:
        """Return an iterator over the values."""
        return chain.from_iterable([part.values() for part in self.parts])

    def items(self) -> Iterator[tuple[bytes, object]]:
        """Return an iterator over keys and values."""
        return chain.from_iterable([part.items() for part in self.parts])
