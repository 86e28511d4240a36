"""Payloads as text: mutations of the text give well-formed bytes.

    b21                one byte
    l5   l-1           a length, of 64 bits if need be
    t1700000000000     a time: 8 bytes                       i5-3   a raw ID: 16 bytes
    stext  s%00        a string, %xx for bytes that could not stand there     ztext  the same, compressed
    k5-3               a string of 16 bytes, the ID of a node
    [ 1 0 'f 7 ]       a string that is a listpack of these integers and texts
    x80ff              bytes as they are

A string begins with its right length, a listpack ends where it says; so a changed number is not a broken
frame but a lie, and what reads the payload must find it.
"""

from __future__ import annotations

import re
from io import BytesIO

from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.output import RdbOutput
from headrace.structures.listpack import Listpack

U64_MAX = (1 << 64) - 1
UNSAFE = re.compile(rb"[^!-$&-~]")
ESCAPED = re.compile(rb"%([0-9a-f]{2})")
WITH_COUNTERS, WITH_ACTIVE_TIMES, WITH_PRODUCERS, WITH_UNOWNED = 19, 21, 26, 27
WORDS = """b15 b19 b21 b26 b27 l0 l1 l2 l3 l5 l-1 l65535 l9223372036854775807 t0 t-1 i0-0 i1-1 i5-0 i5-1 s
sg sgg k5-0 k0-0 k1-1 k18446744073709551615-18446744073709551615 [ ] 0 1 2 3 -1 4 6 'f 'g '
9223372036854775807 -9223372036854775808 x81ffffffffffffffff xc0 xc3 z"""


def number(text: bytes) -> int:
    """A number of 64 bits, whatever stands there."""
    found = re.match(rb"-?\d{1,30}", text)
    return int(found[0]) & U64_MAX if found else 0


def pair(text: bytes) -> bytes:
    """An ID as 16 bytes."""
    ms, _, seq = text.partition(b"-")
    return number(ms).to_bytes(8, "big") + number(seq).to_bytes(8, "big")


def text_of(word: bytes) -> bytes:
    """The text that a word stands for."""
    return ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), word)


def word_of(text: bytes) -> bytes:
    """The word that stands for a text."""
    return UNSAFE.sub(lambda found: b"%%%02x" % found[0][0], text)


def length(n: int) -> bytes:
    """A length as RDB has it, in as few bytes as can be."""
    if n < 64:
        return bytes([n])
    if n < 1 << 14:
        return (n | 1 << 14).to_bytes(2, "big")
    return b"\x80" + n.to_bytes(4, "big") if n < 1 << 32 else b"\x81" + n.to_bytes(8, "big")


def string(data: bytes) -> bytes:
    """A string as it is, or as the integer that it says."""
    out = RdbOutput(None, False)
    out.string(data)
    return out.take()


def packed(data: bytes) -> bytes:
    """A string, compressed if that makes it shorter."""
    out = RdbOutput(None, True)
    out.string(data)
    return out.take()


def listpack(words: list[bytes]) -> bytes:
    """Integers, and texts behind a quote."""
    pack = Listpack()
    for word in words:
        if word[:1] == b"'":
            pack.append(text_of(word[1:]))
        else:
            n = number(word)
            pack.append_int(n - (1 << 64) if n >> 63 else n)
    return pack.to_bytes()


def raw(word: bytes) -> bytes:
    """Pairs of hexadecimal digits, as far as they are."""
    found = re.match(rb"(?:[0-9a-f]{2})*", word)
    return bytes.fromhex(found[0].decode()) if found else b""


SAYING = {
    b"b": lambda word: bytes([number(word) & 0xFF]),
    b"l": lambda word: length(number(word)),
    b"t": lambda word: number(word).to_bytes(8, "little"),
    b"i": pair,
    b"s": lambda word: string(text_of(word)),
    b"z": lambda word: packed(text_of(word) * 20),
    b"k": lambda word: string(pair(word)),
    b"x": raw,
}


def build(recipe: bytes) -> bytes:
    """The bytes that a recipe says; words that say nothing are passed over."""
    parts: list[bytes] = []
    inside: list[bytes] | None = None  # of a listpack
    for word in recipe.split():
        if word == b"[":
            inside = []
        elif word == b"]" and inside is not None:
            parts.append(string(listpack(inside)))
            inside = None
        elif inside is not None:
            inside.append(word)
        elif say := SAYING.get(word[:1]):
            parts.append(say(word[1:]))
    return b"".join(parts)


# ---- from payloads to recipes


class Reader:
    """Says what a payload of a stream holds; kind is its type."""

    def __init__(self, payload: bytes) -> None:
        self.inp = RdbInput(BytesIO(payload).read, checksum=False)
        self.said: list[bytes] = []

    def length(self) -> int:
        """A length, said."""
        n = self.inp.length()
        self.said.append(b"l%d" % n)
        return n

    def lengths(self, n: int) -> None:
        """Several."""
        for _ in range(n):
            self.length()

    def string(self) -> None:
        """A string."""
        self.said.append(b"s" + word_of(self.inp.string()))

    def time(self) -> None:
        """A time."""
        self.said.append(b"t%d" % self.inp.time())

    def raw_id(self) -> None:
        """A raw ID."""
        self.inp.raw_id()
        self.said.append(b"i%d-%d" % (self.inp.ms, self.inp.seq))

    def node(self) -> None:
        """A node: its ID and its listpack."""
        key, data = self.inp.string(), self.inp.string()
        self.said.append(b"k%d-%d [" % (int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")))
        pack = Listpack.from_bytes(data)
        at = pack.first_at()
        while at >= 0:
            is_text = data[at] >> 6 == 2 or data[at] >> 4 == 0xE or data[at] == 0xF0
            self.said.append(b"'" * is_text + word_of(pack.get(at)))
            at = pack.next_at(at)
        self.said.append(b"]\n")

    def group(self, kind: int) -> None:
        """A group with all that is pending and its consumers."""
        self.string()
        self.lengths(3 if kind >= WITH_COUNTERS else 2)
        for _ in range(self.length()):
            self.raw_id()
            self.time()
            self.length()
        for _ in range(self.length()):
            self.string()
            self.time()
            if kind >= WITH_ACTIVE_TIMES:
                self.time()
            for _ in range(self.length()):
                self.raw_id()
        if kind >= WITH_UNOWNED:
            for _ in range(self.length()):
                self.raw_id()
        self.said.append(b"\n")

    def byte(self) -> int:
        """A byte."""
        n = self.inp.byte()
        self.said.append(b"b%d" % n)
        return n

    def stream(self, kind: int) -> None:
        """The object of a stream of that type."""
        for _ in range(self.length()):
            self.node()
        self.lengths(8 if kind >= WITH_COUNTERS else 3)
        for _ in range(self.length()):
            self.group(kind)
        if kind >= WITH_PRODUCERS:
            self.lengths(2)
            for _ in range(self.length()):
                self.string()
                for _ in range(self.length()):
                    self.string()
                    self.lengths(2)
            self.lengths(2)

    def payload(self) -> bytes:
        """A payload without its footer."""
        self.stream(self.byte())
        rest = self.inp.remainder()
        if rest:
            self.said.append(b"x" + rest.hex().encode())
        return b" ".join(self.said)

    def file(self) -> bytes:
        """A snapshot from behind its magic to before its end."""
        strings = {0: 2, 0xFA: 2, 0xF5: 1}
        lengths = {0xFE: 1, 0xFB: 2, 0xF4: 3, 0xF8: 1}
        while (kind := self.inp.byte()) != 0xFF:
            self.said.append(b"\nb%d" % kind)
            if kind == 0xFC:
                self.time()
            elif kind == 0xF9:
                self.byte()
            elif kind in strings:
                for _ in range(strings[kind]):
                    self.string()
            elif kind in lengths:
                self.lengths(lengths[kind])
            else:
                self.string()
                self.stream(kind)
        return b" ".join(self.said)


def recipe_of(body: bytes) -> bytes:
    """The recipe of a stream's payload without its footer, which must be sound and not compressed."""
    return Reader(body).payload()


def recipe_of_file(data: bytes) -> bytes:
    """The recipe of a snapshot, which must be sound and not compressed."""
    return Reader(data[9:]).file()
