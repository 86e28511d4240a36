"""Errors and JSON texts for entries that do not fit a schema, the same for all readers."""

from __future__ import annotations

import json

from headrace.arrow import growable_buffer
from headrace.errors import HeadraceError

# The modes for a value that does not fit its column.
MODES = {"PERMISSIVE": 0, "DROPMALFORMED": 1, "FAILFAST": 2}

# For an entry with more bytes than this, the column of corrupt records has only the ID.
CORRUPT_BYTES_MAX = 16 << 20

# What to do about a value that may not be null, in Spark. The library replaces this sentence.
SPARK_NULLABLE_ADVICE = (
    "Make the column a STRING, or nullable in mode PERMISSIVE, or set the option mode to DROPMALFORMED."
)

# What to do about a part of an ID that is too large for any column. The archive job and the library replace
# this sentence.
SPARK_ID_PART_ADVICE = "Read such a stream with a schema that has `_id STRING` and not that part of the ID."


class MalformedEntry(HeadraceError):
    """An entry that does not fit the schema, where the mode or a NOT NULL column forbids a null."""


def missing_value_error(stream: str, entry_id: str, name: bytes) -> MalformedEntry:
    """Return the error for an entry without a fitting value for the field of that name; b"" for no field."""
    what = f"field {name.decode(errors='replace')!r}" if name else "a field"
    return MalformedEntry(
        f"stream {stream!r}, entry {entry_id}: {what} is missing or does not fit its column. "
        f"{SPARK_NULLABLE_ADVICE}"
    )


def id_part_error(stream: str, entry_id: str, part: str) -> MalformedEntry:
    """Return the error for a part of an ID, "sequence" or "time", that is too large for its column."""
    kind = "LONG" if part == "sequence" else "TIMESTAMP"
    return MalformedEntry(
        f"stream {stream!r}, entry {entry_id}: its {part} does not fit a {kind}. {SPARK_ID_PART_ADVICE}"
    )


def not_utf8_error(stream: str, entry_id: str) -> MalformedEntry:
    """Return the error for an entry with a name or value that is not UTF-8, for a map of text."""
    return MalformedEntry(
        f"stream {stream!r}, entry {entry_id}: a name or value is not UTF-8, "
        "and a map of strings cannot hold it. Set the option fieldsType to binary, or mode to PERMISSIVE to "
        "have such bytes escaped."
    )


def entry_json(entry_id: str, words: list[bytes]) -> bytes:
    """Return the entry as JSON for the column of corrupt records; bytes that are not UTF-8 as \\x escapes.

    An entry of more than CORRUPT_BYTES_MAX bytes is represented by its ID alone.
    """
    whole: dict[str, object] = {"id": entry_id}
    if sum(map(len, words)) <= CORRUPT_BYTES_MAX:
        texts = [growable_buffer.escaped(word).decode() for word in words]
        whole["fields"] = dict(zip(texts[::2], texts[1::2], strict=True))
    return json.dumps(whole, ensure_ascii=False).encode()
