"""Runs for tests of cold files: nodes that look like listpacks."""

import struct
from collections.abc import Iterable
from random import Random

Nodes = list[tuple[bytes, bytes]]


def key(ms: int, seq: int = 0) -> bytes:
    """Return the key of a node."""
    return struct.pack(">QQ", ms, seq)


def block(contents: bytes) -> bytes:
    """Return contents in the frame of a listpack: its size, a number of elements, and the end."""
    return struct.pack("<IH", len(contents) + 7, 0xFFFF) + contents + b"\xff"


def nodes(contents: Iterable[bytes], first: int = 1) -> Nodes:
    """Return nodes with these contents and keys from first-0."""
    return [(key(first + i), block(one)) for i, one in enumerate(contents)]


def random_run(rng: Random, size_max: int = 300) -> Nodes:
    """Return up to five nodes, some of which compress."""
    several = range(rng.randint(1, 5))
    return nodes(
        (bytes(rng.choices(b"abcdef" if i % 2 else range(256), k=rng.randint(0, size_max))) for i in several),
        rng.randint(1, 1 << 40),
    )
