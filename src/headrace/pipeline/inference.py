"""Columns for fields that nobody declared, proposed from some entries, old and new: of archives and queries.

    every value is written as        the column is
    true, false                      BOOLEAN
    a whole number, not 007 or +1    BIGINT, or STRING if one does not fit
    a number                         DOUBLE
    2013-01-31                       DATE
    anything else                    STRING

Text that would come back otherwise than it was written is kept as text. A value that comes later and does not
fit makes its column null, and its whole entry stands in the column _corrupt_record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.errors import UsageError
from headrace.spark.shards import Servers
from headrace.spark.stream_names import key

SAMPLE = 1000
WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,18}")
NUMBER = re.compile(rb"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,3})?")
DATE = re.compile(rb"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
BIGGEST = 1 << 63


def both_ends(
    servers: Servers, streams: Iterable[str], entries: int
) -> dict[str, list[Mapping[bytes, bytes]] | Exception]:
    """By stream the fields of so many of its entries, half of them its first, half its last; none twice."""
    half = -(-entries // 2)

    def put(pipe: Any, stream: str) -> None:
        pipe.xrange(key(stream), count=half)
        pipe.xrevrange(key(stream), count=half)

    found: dict[str, list[Mapping[bytes, bytes]] | Exception] = {}
    for stream, (first, last) in servers.ask_each(streams, put).items():
        refused = next((answer for answer in (first, last) if isinstance(answer, Exception)), None)
        found[stream] = refused or list(dict([*first, *reversed(last)]).values())
    return found


def sample(url: str, streams: Iterable[str], entries: int = SAMPLE) -> list[Mapping[bytes, bytes]]:
    """The same of all streams together. UsageError if one cannot be read."""
    servers = Servers(url, patience=0)
    found: list[Mapping[bytes, bytes]] = []
    try:
        for stream, fields in both_ends(servers, streams, entries).items():
            if isinstance(fields, Exception):
                raise UsageError(f"stream {stream!r} cannot be sampled: {fields}")
            found += fields
    finally:
        servers.close()
    return found


def kinds_of(entries: Iterable[Mapping[bytes, bytes]]) -> dict[bytes, str]:
    """The type of each field, in the order in which they first come."""
    kinds: dict[bytes, str] = {}
    for entry in entries:
        for name, value in entry.items():
            kinds[name] = wider(kinds.get(name), kind_of(value))
    return kinds


def infer(entries: Iterable[Mapping[bytes, bytes]]) -> str:
    """Columns in SQL for the fields of these entries, in the order in which they first come.

    UsageError if there is no field, or if two differ only in case, which Spark does not tell apart.
    """
    kinds: dict[str, str] = {}
    for raw, kind in kinds_of(entries).items():
        try:
            kinds[raw.decode()] = kind
        except UnicodeDecodeError as error:
            raise UsageError(f"the field {raw!r} is no text; archive all fields as one map") from error
    if not kinds:
        raise UsageError("there are no entries to infer fields from; say them in --fields")
    folded: dict[str, str] = {}
    for name in kinds:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            raise UsageError(
                f"the fields {other!r} and {name!r} differ only in case; archive them as one map"
            )
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())


def kind_of(value: bytes) -> str:
    """The narrowest type that gives a value back."""
    if value in (b"true", b"false"):
        return "BOOLEAN"
    if WHOLE.fullmatch(value):
        return "BIGINT" if -BIGGEST <= int(value) < BIGGEST else "STRING"
    if NUMBER.fullmatch(value):
        return "DOUBLE"
    if DATE.fullmatch(value):
        return "DATE"
    return "STRING"


def wider(one: str | None, other: str) -> str:
    """The type that holds what both hold."""
    if one is None or one == other:
        return other
    return "DOUBLE" if {one, other} == {"BIGINT", "DOUBLE"} else "STRING"


def quoted(name: str) -> str:
    """A column's name as SQL takes any."""
    return "`" + name.replace("`", "``") + "`"
