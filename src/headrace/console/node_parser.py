"""Parse a stream node into its elements and the role of every byte.

    header         total, count
    master entry   live, deleted, num-fields, field-1 ... field-N, 0
    entry          flags, ms-delta, seq-delta, [num-fields, [field-1,]] value-1 ..., lp-count
    end            FF

structures/listpack_walk.py draws the encoding, payload and trailing length of an element. This second parser
of the same bytes is slow; it keeps the offset and role of each byte for drawings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.console.escaping import printable
from headrace.errors import HeadraceError

HEADER_BYTES = 6
END = 0xFF
DELETED, SAME_FIELDS = 1, 2
U64_MASK = (1 << 64) - 1
TRAIL_BYTES_MAX = 5

# Roles of bytes.
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
    """The bytes are not a valid node; the text says where."""


@dataclass(frozen=True)
class Element:
    """One element of a listpack.

    Attributes:
        offset: Offset of its first byte.
        encoding_bytes: Number of bytes of encoding before the payload; 0 for an integer.
        payload_bytes: Number of bytes of payload.
        trail_bytes: Number of bytes of trailing length.
        value: The integer or text.
        raw: All its bytes.
    """

    offset: int
    encoding_bytes: int
    payload_bytes: int
    trail_bytes: int
    value: int | bytes
    raw: bytes

    @property
    def end(self) -> int:
        """Return the offset after its last byte."""
        return self.offset + self.encoding_bytes + self.payload_bytes + self.trail_bytes


@dataclass(frozen=True)
class NamedElement:
    """An element with a name and the role of its bytes."""

    name: str
    role: str
    element: Element


@dataclass
class Entry:
    """One entry, or the tombstone of a deleted one."""

    ms: int
    seq: int
    flags: int
    parts: list[NamedElement] = field(default_factory=list)

    @property
    def is_deleted(self) -> bool:
        """Return whether it is a tombstone."""
        return bool(self.flags & DELETED)

    @property
    def id(self) -> str:
        """Return its ID."""
        return f"{self.ms}-{self.seq}"

    @property
    def offset(self) -> int:
        """Return the offset of its first byte."""
        return self.parts[0].element.offset

    @property
    def end(self) -> int:
        """Return the offset after its last byte."""
        return self.parts[-1].element.end


@dataclass
class ParsedNode:
    """A parsed node: its key, its bytes, its master entry and its entries.

    `ms` and `seq` are the ID in the key; `element_count` is the number of elements that the header states.
    """

    key: bytes
    data: bytes
    ms: int
    seq: int
    element_count: int
    master_parts: list[NamedElement]
    entries: list[Entry]

    @property
    def live(self) -> int:
        """Return the number of entries that are not deleted."""
        return sum(not entry.is_deleted for entry in self.entries)

    def byte_roles(self) -> list[str]:
        """Return the role of each byte."""
        roles = [HEADER] * len(self.data)
        for part in self.master_parts:
            _set_roles(roles, part, False)
        for entry in self.entries:
            for part in entry.parts:
                _set_roles(roles, part, entry.is_deleted)
        return roles


def _set_roles(roles: list[str], part: NamedElement, dead: bool) -> None:
    element = part.element
    body = element.end - element.trail_bytes
    roles[element.offset : body] = [DEAD if dead else part.role] * (body - element.offset)
    roles[body : element.end] = [DEAD if dead else TRAIL] * element.trail_bytes


def parse_node(key: bytes, data: bytes) -> ParsedNode:
    """Parse a node from its key and its listpack. Raises InvalidNode if they are not valid."""
    if len(key) != 16:
        raise InvalidNode(f"the key has {len(key)} bytes; expected 16")
    if len(data) <= HEADER_BYTES or int.from_bytes(data[:4], "little") != len(data) or data[-1] != END:
        raise InvalidNode(f"the {len(data)} bytes have a wrong length in the header, or do not end with FF")
    ms, seq = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")
    walk = elements(data)
    master = list(_master(walk))
    names = [part.element for part in master if part.role == FIELD]
    node = ParsedNode(key, data, ms, seq, int.from_bytes(data[4:6], "little"), master, [])
    for first in walk:
        node.entries.append(_entry(first, walk, names, ms, seq))
    return node


def elements(data: bytes) -> Iterator[Element]:
    """Yield the elements of a listpack. Raises InvalidNode if one extends past its end."""
    at = HEADER_BYTES
    while data[at] != END:
        element = _element(data, at)
        yield element
        at = element.end
        if at >= len(data):
            raise InvalidNode(f"the element at {element.offset} exceeds the listpack")
    if at != len(data) - 1:
        raise InvalidNode(f"the end byte is at {at}, before the last byte")


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
        raise InvalidNode(f"invalid encoding byte {first:02X} at {at}")
    if at + head + body >= len(data):
        raise InvalidNode(f"the element at {at} exceeds the listpack")
    if head:
        value = data[at + head : at + head + body]
    trail = _trail(data, at, head + body)
    return Element(at, head, body, trail, value, data[at : at + head + body + trail])


def _trail(data: bytes, at: int, size: int) -> int:
    """Return the number of bytes of trailing length, in the form of Redis or Valkey.

    Raises:
        InvalidNode: if they do not encode `size`.
    """
    for n in range(1, TRAIL_BYTES_MAX + 1):
        groups = [size >> 7 * place & 0x7F for place in reversed(range(n))]
        expected = bytes([groups[0], *(0x80 | group for group in groups[1:])])
        if size >> 7 * n == 0 and data[at + size : at + size + n] == expected:
            return n
    raise InvalidNode(f"the element at {at} has {size} bytes, but its trailing length differs")


def _next(walk: Iterator[Element], what: str) -> Element:
    element = next(walk, None)
    if element is None:
        raise InvalidNode(f"the listpack ends instead of {what}")
    return element


def _number(element: Element, what: str) -> int:
    if not isinstance(element.value, int):
        raise InvalidNode(f"{what} at {element.offset} is not a number")
    return element.value


def _master(walk: Iterator[Element]) -> Iterator[NamedElement]:
    fields = 0
    for what in ("live", "deleted", "num-fields"):
        element = _next(walk, what)
        fields = _number(element, what)
        yield NamedElement(what, MASTER, element)
    for number in range(fields):
        yield NamedElement(f"field {number + 1}", FIELD, _next(walk, "a field's name"))
    yield NamedElement("end", MASTER, _next(walk, "the end of the master entry"))


def _entry(first: Element, walk: Iterator[Element], names: list[Element], ms: int, seq: int) -> Entry:
    flags = _number(first, "flags")
    parts = [NamedElement("flags", FLAGS, first)]
    deltas = []
    for what in ("ms-delta", "seq-delta"):
        element = _next(walk, what)
        deltas.append(_number(element, what))
        parts.append(NamedElement(what, DELTA, element))
    if flags & SAME_FIELDS:
        for name in names:
            parts.append(NamedElement(f"= {printable(name.value)}", VALUE, _next(walk, "a value")))
    else:
        element = _next(walk, "num-fields")
        parts.append(NamedElement("num-fields", MASTER, element))
        for number in range(_number(element, "num-fields")):
            name = _next(walk, "a field's name")
            parts.append(NamedElement(f"field {number + 1}", FIELD, name))
            parts.append(NamedElement(f"= {printable(name.value)}", VALUE, _next(walk, "a value")))
    count = _next(walk, "lp-count")
    if _number(count, "lp-count") != len(parts):
        raise InvalidNode(f"the lp-count at {count.offset} is {count.value!r}; expected {len(parts)}")
    parts.append(NamedElement("lp-count", COUNT, count))
    return Entry((ms + deltas[0]) & U64_MASK, (seq + deltas[1]) & U64_MASK, flags, parts)
