"""Mutations: small changes of valid bytes, as by damage or an attacker.

    flip  set  insert  delete  copy  splice  word  number  integer  repeat

`number` replaces decimal digits by another number: one more, one less, negative, huge. `integer` does the
same with the bytes of a binary length. A target recomputes checksums and header lengths: see Target.finish.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

DIGITS = re.compile(rb"-?\d+")
NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"2",
    b"63",
    b"64",
    b"127",
    b"255",
    b"65535",
    b"65536",
    b"1000000",
    b"536870912",
    b"2147483647",
    b"2147483648",
    b"4294967295",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999",
    b"00",
    b"1.5",
    b"1e99",
    b"nan",
)
EDGES = (0, 1, 0x3F, 0x40, 0x7F, 0x80, 0x81, 0xC0, 0xC3, 0xE0, 0xF0, 0xF1, 0xF4, 0xFE, 0xFF)
STEPS = (1, 1, 1, 2, 2, 3, 5, 9)  # how many changes at once


class Mutator:
    """Mutates bytes by one random source. words: tokens of the format; size_max: the longest result."""

    def __init__(self, rng: Random, words: Sequence[bytes], size_max: int) -> None:
        self.rng = rng
        self.words = words or NUMBERS
        self.size_max = size_max
        self.ways = [
            self.flip,
            self.set,
            self.insert,
            self.delete,
            self.copy,
            self.splice,
            self.word,
            self.word,
            self.number,
            self.number,
            self.integer,
            self.repeat,
        ]

    def mutated(self, data: bytes, other: bytes) -> bytes:
        """Return data with a few mutations, which may insert pieces of other."""
        body = bytearray(data)
        self.other = other
        for _ in range(self.rng.choice(STEPS)):
            if not body:
                body += self.rng.choice(self.words)
            self.rng.choice(self.ways)(body)
        return bytes(body[: self.size_max])

    def place(self, body: bytearray) -> int:
        """Return a random offset, or the end."""
        return int(self.rng.random() * (len(body) + 1))

    def stretch(self, body: bytes | bytearray) -> slice:
        """Return a random slice, mostly a short one."""
        at = int(self.rng.random() * (len(body) + 1))
        return slice(at, at + 1 + int(self.rng.random() ** 3 * len(body)))

    def flip(self, body: bytearray) -> None:
        """Flip a bit."""
        body[int(self.rng.random() * len(body))] ^= 1 << self.rng.randrange(8)

    def set(self, body: bytearray) -> None:
        """Set a byte to an edge case."""
        body[int(self.rng.random() * len(body))] = self.rng.choice(EDGES)

    def insert(self, body: bytearray) -> None:
        """Insert a few bytes."""
        at = self.place(body)
        body[at:at] = self.rng.randbytes(self.rng.randrange(1, 9))

    def delete(self, body: bytearray) -> None:
        """Delete a piece."""
        del body[self.stretch(body)]

    def copy(self, body: bytearray) -> None:
        """Copy a piece to another place."""
        at = self.place(body)
        body[at:at] = body[self.stretch(body)]

    def splice(self, body: bytearray) -> None:
        """Insert a piece of another input, or replace the end by its end."""
        if self.rng.random() < 0.5:
            body[self.place(body) :] = self.other[int(self.rng.random() * len(self.other)) :]
        else:
            body[self.stretch(body)] = self.other[self.stretch(self.other)]

    def word(self, body: bytearray) -> None:
        """Insert or overwrite with a token of the format."""
        at = self.place(body)
        word = self.rng.choice(self.words)
        body[at : at + (len(word) if self.rng.random() < 0.5 else 0)] = word

    def number(self, body: bytearray) -> None:
        """Replace a decimal number, possibly with another sign."""
        found = DIGITS.search(body, int(self.rng.random() * len(body))) or DIGITS.search(body)
        if found is None:
            self.word(body)
            return
        fresh = self.rng.choice(NUMBERS)
        if self.rng.random() < 0.5 and len(found[0]) < 20:
            fresh = b"%d" % (int(found[0]) + self.rng.choice((-2, -1, 1, 1, 2, 256, 1 << 32)))
        body[found.start() : found.end()] = fresh

    def integer(self, body: bytearray) -> None:
        """Change an integer of 1, 2, 4 or 8 bytes, in either byte order, a little or to an extreme."""
        size, order = self.rng.choice((1, 2, 4, 8)), self.rng.choice(("little", "big"))
        at = int(self.rng.random() * len(body))
        was = int.from_bytes(body[at : at + size], order)
        top = (1 << 8 * size) - 1
        fresh = self.rng.choice((was + 1, was - 1, was + 7, 2 * was, top, top >> 1, top // 2 + 1, 0))
        body[at : at + size] = (fresh & top).to_bytes(size, order)

    def repeat(self, body: bytearray) -> None:
        """Repeat a piece."""
        where = self.stretch(body)
        piece = body[where][:64]
        body[where.start : where.start] = piece * self.rng.choice((2, 3, 8, 70, 300))
