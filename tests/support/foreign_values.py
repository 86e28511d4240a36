"""Values of foreign types as RDB bytes, built by hand from descriptions of the format."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from headrace.persistence.rdb.output import RdbOutput

MAGICS = (b"REDIS0003", b"REDIS0010", b"REDIS0012", b"REDIS0014", b"VALKEY080")
EXPIRES = struct.pack("<q", 1_800_000_000_000)


def length(n: int) -> bytes:
    """A length, in its shortest form."""
    out = RdbOutput(None, False)
    out.length(n)
    return out.take()


def string(text: bytes, compress: bool = False) -> bytes:
    """A string, in its shortest form."""
    out = RdbOutput(None, compress)
    out.string(text)
    return out.take()


def some_string(rng: Random) -> bytes:
    """A string in any of its encodings."""
    n = rng.choice([1, 5, 70, 300])
    return rng.choice(
        [
            string(b""),
            string(b"%d" % rng.randrange(-(1 << 40), 1 << 40)),
            string(b"%d" % rng.choice([0, -128, 127, 128, -32768, 32768, -(1 << 31)])),
            string(rng.randbytes(n)),
            string(rng.randbytes(3) * n, compress=True),
            b"\x80" + struct.pack(">I", 3) + b"\xff\xfc\x00",
            b"\x81" + struct.pack(">Q", 1) + b"\xfe",
        ]
    )


def some_length(rng: Random) -> bytes:
    """A length in any of its encodings."""
    return length(rng.choice([0, 1, 63, 64, 16383, 16384, (1 << 32) - 1, 1 << 32, (1 << 64) - 1]))


def score_text(rng: Random) -> bytes:
    """A score as old servers write it."""
    text = b"%r" % rng.uniform(-1e9, 1e9)
    return rng.choice([b"\xfd", b"\xfe", b"\xff", b"\x00", b"\x01" + b"7", bytes([len(text)]) + text])


def score(rng: Random) -> bytes:
    """A score in binary."""
    return struct.pack("<d", rng.choice([0.5, -2.0, float("inf"), float("-inf"), float("nan")]))


def module_data(rng: Random) -> bytes:
    """Some values of a module, and their end."""
    parts = [
        lambda: b"\x01" + some_length(rng),
        lambda: b"\x02" + some_length(rng),
        lambda: b"\x03" + struct.pack("<f", 1.5),
        lambda: b"\x04" + struct.pack("<d", 1.5),
        lambda: b"\x05" + some_string(rng),
    ]
    return b"".join(rng.choice(parts)() for _ in range(rng.randrange(9))) + b"\x00"


def counted(part: Callable[[Random], bytes]) -> Callable[[Random], bytes]:
    """Count, then that many parts."""

    def build(rng: Random) -> bytes:
        n = rng.choice([0, 1, 2, 20])
        return length(n) + b"".join(part(rng) for _ in range(n))

    return build


def array(rng: Random) -> bytes:
    """An array of Redis 8.8."""
    n = rng.choice([0, 1, 20])
    body = [length(n), rng.choice([b"\x00", b"\x01" + some_length(rng)])]
    for _ in range(n):
        kind = rng.randrange(4)
        body += [some_length(rng), bytes([kind]), rng.randbytes(8) if kind in (1, 2) else some_string(rng)]
    return b"".join(body)


pairs = counted(lambda rng: some_string(rng) + some_string(rng))
fields = counted(lambda rng: some_length(rng) + some_string(rng) + some_string(rng))

# A type's number, the magic it needs (b"": any), its name, and a function that makes a value.
VALUES: list[tuple[int, bytes, str, Callable[[Random], bytes]]] = [
    (1, b"", "list", counted(some_string)),
    (2, b"", "set", counted(some_string)),
    (3, b"", "sorted set", counted(lambda rng: some_string(rng) + score_text(rng))),
    (4, b"", "hash", pairs),
    (5, b"", "sorted set", counted(lambda rng: some_string(rng) + score(rng))),
    (7, b"", "module value", lambda rng: length(rng.getrandbits(64)) + module_data(rng)),
    (9, b"", "hash", some_string),
    (10, b"", "list", some_string),
    (11, b"", "set", some_string),
    (12, b"", "sorted set", some_string),
    (13, b"", "hash", some_string),
    (14, b"", "list", counted(some_string)),
    (16, b"", "hash", some_string),
    (17, b"", "sorted set", some_string),
    (18, b"", "list", counted(lambda rng: rng.choice([b"\x01", b"\x02"]) + some_string(rng))),
    (20, b"", "set", some_string),
    (22, b"REDIS0012", "hash", fields),
    (22, b"VALKEY080", "hash", counted(lambda rng: some_string(rng) + some_string(rng) + EXPIRES)),
    (23, b"REDIS0012", "hash", some_string),
    (24, b"REDIS0012", "hash", lambda rng: EXPIRES + fields(rng)),
    (25, b"REDIS0012", "hash", lambda rng: EXPIRES + some_string(rng)),
    (28, b"REDIS0014", "array", array),
]
