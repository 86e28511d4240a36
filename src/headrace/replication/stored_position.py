r"""Read and write the position of data in the history of replication, as snapshots and logs store it.

A snapshot has auxiliary fields:

    repl-stream-db   the database that the stream has selected at this point, in decimal
    repl-id          the history: 40 hexadecimal digits
    repl-offset      the bytes of that history's stream up to this point, in decimal

A log that was closed without an error ends in a comment, which other readers skip:

    #REPL:<repl-stream-db>,<repl-id>,<repl-offset>\r\n
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

COMMENT_PREFIX = b"#REPL:"
DATABASE, HISTORY, OFFSET = b"repl-stream-db", b"repl-id", b"repl-offset"

DATABASES_MAX = 1 << 31
OFFSET_MAX = 1 << 62  # a stream that begins here can still be counted in 63 bits

is_number = re.compile(rb"[0-9]{1,19}").fullmatch
is_replication_id = re.compile(rb"[0-9a-f]{40}").fullmatch


class StoredPosition(NamedTuple):
    """A point of a history, and the database that the stream has selected there."""

    database: int
    replication_id: str
    offset: int


def encode_position(database: int, history: str, offset: int) -> dict[bytes, bytes]:
    """Return the auxiliary fields that store this position."""
    return {DATABASE: b"%d" % database, HISTORY: history.encode(), OFFSET: b"%d" % offset}


def encode_comment(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the comment that stores the same position as these auxiliary fields."""
    return COMMENT_PREFIX + b",".join([fields[DATABASE], fields[HISTORY], fields[OFFSET]]) + b"\r\n"


def decode_position(aux: Mapping[bytes, bytes]) -> StoredPosition | None:
    """Return the position in a snapshot's auxiliary fields; None if they are absent or malformed."""
    return _decode(*(aux.get(name, b"") for name in (DATABASE, HISTORY, OFFSET)))


def decode_comment(line: bytes) -> StoredPosition | None:
    """Return the position in the last line of a log; None if it has none."""
    words = line.removeprefix(COMMENT_PREFIX).removesuffix(b"\r\n").split(b",")
    return _decode(*words) if line.startswith(COMMENT_PREFIX) and len(words) == 3 else None


def _decode(database: bytes, history: bytes, offset: bytes) -> StoredPosition | None:
    if not is_number(database) or not is_number(offset) or not is_replication_id(history):
        return None
    found = StoredPosition(int(database), history.decode(), int(offset))
    return found if found.database < DATABASES_MAX and found.offset <= OFFSET_MAX else None
