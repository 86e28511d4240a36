"""The auxiliary fields of a snapshot that say which point of which history it has.

repl-stream-db   the database that the stream has selected at this point, in decimal
repl-id          the history: 40 hexadecimal digits
repl-offset      the bytes of that history's stream up to this point, in decimal
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

DATABASE, HISTORY, OFFSET = b"repl-stream-db", b"repl-id", b"repl-offset"

DATABASES_MAX = 1 << 31
OFFSET_MAX = (1 << 63) - 1

is_number = re.compile(rb"[0-9]{1,19}").fullmatch
is_history = re.compile(rb"[0-9a-f]{40}").fullmatch


class SnapshotPosition(NamedTuple):
    """A point of a history, and the database that the stream has selected there."""

    database: int
    history: str
    offset: int


def encode_position(database: int, history: str, offset: int) -> dict[bytes, bytes]:
    """Return the auxiliary fields that say this position."""
    return {DATABASE: b"%d" % database, HISTORY: history.encode(), OFFSET: b"%d" % offset}


def decode_position(aux: Mapping[bytes, bytes]) -> SnapshotPosition | None:
    """Return the position that a snapshot's auxiliary fields say; None if they are absent or malformed."""
    database, history, offset = (aux.get(name, b"") for name in (DATABASE, HISTORY, OFFSET))
    if not is_number(database) or not is_number(offset) or not is_history(history):
        return None
    found = SnapshotPosition(int(database), history.decode(), int(offset))
    return found if found.database < DATABASES_MAX and found.offset <= OFFSET_MAX else None
