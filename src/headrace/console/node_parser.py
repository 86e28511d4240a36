"""A node taken apart: every byte of its listpack, and what it is there for.

    header         total, count
    master entry   live, deleted, num-fields, field-1 ... field-N, 0
    entry          flags, ms-delta, seq-delta, [num-fields, [field-1,]] value-1 ..., lp-count
    end            FF

How an element is made of encoding, payload and trailing length is drawn in structures/listpack_walk.py. This
is a second reader of the same bytes, for eyes: slow, and it says where each byte belongs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.console.escaping import printable
from headrace.errors import HeadraceError

HEADER_BYTES = 6
END = 0xFF
DELETED, SAME_FIELDS = 1, 2
MASK = (1 << 64) - 1
TRAIL_BYTES_MAX = 5

# What a byte can be there for.
HEADER, MASTER, FIELD, FLAGS, DELTA, VALUE, COUNT, TRAIL, DEAD = (
    "header",
    "master",
    "field",
    "flags",
    "delta",
    "value",
    "lp-count",
    "trail",
    "dead",
)


class InvalidNode(HeadraceError, ValueError):
    """The bytes are no node; the text says where they go wrong."""


@dataclass(frozen=True)
class Element:
    """One element: where it lies, how many of its bytes are encoding, payload and trailing length."""

    at: int
    head: int  # bytes of encoding that hold no text; an integer is payload from its first byte on
    body: int
    trail: int
    value: int | bytes
    raw: bytes  # all of its bytes

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.at + self.head + self.body + self.trail


@dataclass(frozen=True)
class Part:
    """An element with its place in the node: its name, and what its bytes are there for."""

    name: str
    role: str
    element: Element


@dataclass
class Entry:
    """One entry; dead: it was deleted, and its bytes are still there."""

    ms: int
    seq: int
    flags: int
    parts: list[Part] = field(default_factory=list)

    @property
    def dead(self) -> bool:
        """Whether it is a tombstone."""
        return bool(self.flags & DELETED)

    @property
    def id(self) -> str:
        """Its ID."""
        return f"{self.ms}-{self.seq}"

    @property
    def at(self) -> int:
        """Where its first byte lies."""
        return self.parts[0].element.at

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.parts[-1].element.end


@dataclass
class NodeParts:
    """A node: its key, its bytes and all that they are."""

    key: bytes
    data: bytes
    ms: int
    seq: int
    count: int
    master: list[Part]
    entries: list[Entry]

    @property
    def live(self) -> int:
        """Entries that are not deleted."""
        return sum(not entry.dead for entry in self.entries)

    def roles(self) -> list[str]:
        """What each byte is there for."""
        roles = [HEADER] * len(self.data)
        for part in self.master:
            _style_of(roles, part, False)
        for entry in self.entries:
            for part in entry.parts:
                _style_of(roles, part, entry.dead)
        return roles


def _style_of(roles: list[str], part: Part, dead: bool) -> None:
    element = part.element
    body = element.end - element.trail
    roles[element.at : body] = [DEAD if dead else part.role] * (body - element.at)
    roles[body : element.end] = [DEAD if dead else TRAIL] * element.trail


def parse_node(key: bytes, data: bytes) -> NodeParts:
    """The node under key, whose listpack is data. NoNode if they are not one."""
    if len(key) != 16:
        raise InvalidNode(f"a key of {len(key)} bytes; a node's has 16")
    if len(data) <= HEADER_BYTES or int.from_bytes(data[:4], "little") != len(data) or data[-1] != END:
        raise InvalidNode(f"{len(data)} bytes that do not say so, or do not end with FF")
    ms, seq = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")
    walk = elements(data)
    master = list(_master(walk))
    names = [part.element for part in master if part.role == FIELD]
    node = NodeParts(key, data, ms, seq, int.from_bytes(data[4:6], "little"), master, [])
    for first in walk:
        node.entries.append(_entry(first, walk, names, ms, seq))
    return node


def elements(data: bytes) -> Iterator[Element]:
    """The elements of a listpack, each checked to lie in it."""
    at = HEADER_BYTES
    while data[at] != END:
        element = _element(data, at)
        yield element
        at = element.end
        if at >= len(data):
            raise InvalidNode(f"the element at {element.at} reaches over the end")
    if at != len(data) - 1:
        raise InvalidNode(f"an end at {at}, before the end")


def _element(data: bytes, at: int) -> Element:
    first = data[at]
    head, body = 0, 0
    value: int | bytes = first
    if first < 0x80:
        body = 1
    elif first < 0xC0:
        head, body = 1, first & 0x3F
    elif first < 0xE0:
        body = 2
        value = int.from_bytes(data[at : at + 2], "big") & 0x1FFF
        value -= (value >> 12) << 13
    elif first < 0xF0:
        head, body = 2, int.from_bytes(data[at : at + 2], "big") & 0xFFF
    elif first == 0xF0:
        head, body = 5, int.from_bytes(data[at + 1 : at + 5], "little")
    elif first <= 0xF4:
        body = {0xF1: 3, 0xF2: 4, 0xF3: 5, 0xF4: 9}[first]
        value = int.from_bytes(data[at + 1 : at + body], "little", signed=True)
    else:
        raise InvalidNode(f"no element begins with {first:02X}, as at {at}")
    if at + head + body >= len(data):
        raise InvalidNode(f"the element at {at} reaches over the end")
    if head:
        value = data[at + head : at + head + body]
    trail = _trail(data, at, head + body)
    return Element(at, head, body, trail, value, data[at : at + head + body + trail])


def _trail(data: bytes, at: int, size: int) -> int:
    """How many bytes of trailing length follow, in Redis's form or Valkey's. NoNode when they lie."""
    for n in range(1, TRAIL_BYTES_MAX + 1):
        groups = [size >> 7 * place & 0x7F for place in reversed(range(n))]
        expected = bytes([groups[0], *(0x80 | group for group in groups[1:])])
        if size >> 7 * n == 0 and data[at + size : at + size + n] == expected:
            return n
    raise InvalidNode(f"the element at {at} has {size} bytes, and its trailing length says otherwise")


def _next(walk: Iterator[Element], what: str) -> Element:
    element = next(walk, None)
    if element is None:
        raise InvalidNode(f"the listpack ends where {what} should be")
    return element


def _number(element: Element, what: str) -> int:
    if not isinstance(element.value, int):
        raise InvalidNode(f"{what}, at {element.at}, is no number")
    return element.value


def _master(walk: Iterator[Element]) -> Iterator[Part]:
    fields = 0
    for what in ("live", "deleted", "num-fields"):
        element = _next(walk, what)
        fields = _number(element, what)
        yield Part(what, MASTER, element)
    for number in range(fields):
        yield Part(f"field {number + 1}", FIELD, _next(walk, "a field's name"))
    yield Part("end", MASTER, _next(walk, "the end of the master entry"))


def _entry(first: Element, walk: Iterator[Element], names: list[Element], ms: int, seq: int) -> Entry:
    flags = _number(first, "flags")
    parts = [Part("flags", FLAGS, first)]
    deltas = []
    for what in ("ms-delta", "seq-delta"):
        element = _next(walk, what)
        deltas.append(_number(element, what))
        parts.append(Part(what, DELTA, element))
    if flags & SAME_FIELDS:
        for name in names:
            parts.append(Part(f"= {printable(name.value)}", VALUE, _next(walk, "a value")))
    else:
        element = _next(walk, "num-fields")
        parts.append(Part("num-fields", MASTER, element))
        for number in range(_number(element, "num-fields")):
            name = _next(walk, "a field's name")
            parts.append(Part(f"field {number + 1}", FIELD, name))
            parts.append(Part(f"= {printable(name.value)}", VALUE, _next(walk, "a value")))
    count = _next(walk, "lp-count")
    if _number(count, "lp-count") != len(parts):
        raise InvalidNode(f"the lp-count at {count.at} is {count.value!r}, of {len(parts)} elements")
    parts.append(Part("lp-count", COUNT, count))
    return Entry((ms + deltas[0]) & MASK, (seq + deltas[1]) & MASK, flags, parts)
