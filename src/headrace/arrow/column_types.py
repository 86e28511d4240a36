r"""The column types of XARROW, and how the columns are built.

    of the entry    ID  TIMESTAMP (of its ID, in µs)  SEQUENCE  FIELDS  BINARYVALUES  BINARYFIELDS  CORRUPT
    of a field      UTF8  BINARY  BOOL  INT8  INT16  INT32  INT64  FLOAT32  FLOAT64
                    EPOCH_MS  EPOCH_S (numbers that become timestamps in µs)

FIELDS is a map of text to text, BINARYVALUES of text to bytes, BINARYFIELDS of bytes to bytes. In the text of
a map, each byte that is not UTF-8 is written as \xNN. `!` after a type forbids nulls.

There are no types for dates, decimals and ISO times: parsing them takes a Python call for each value. Many
readers do that better than the one thread of the server.
"""

from __future__ import annotations

from typing import Any

from headrace.arrow.columns import Column
from headrace.errors import CommandError

COLUMNS_MAX = 1000
NO_FIELD = b"*"  # the name of a column that is not read from a field
SHOWN_ARGUMENT_BYTES_MAX = 60  # bytes of a wrong argument that an error repeats


def _integer(width: int) -> tuple[str, dict[str, Any]]:
    bits = 8 * width - 1
    return "integer", {"width": width, "low": -(1 << bits), "high": (1 << bits) - 1}


def _time(scale: int) -> tuple[str, dict[str, Any]]:
    limit = ((1 << 63) - 1) // scale
    return "integer", {"scale": scale, "low": -limit, "high": limit}


# The kind of arrow.columns.Column and its settings.
KIND_SETTINGS_BY_TYPE: dict[str, tuple[str, dict[str, Any]]] = {
    "ID": ("id", {}),
    "TIMESTAMP": ("timestamp", {}),
    "SEQUENCE": ("sequence", {}),
    "FIELDS": ("fields", {"utf8_names": True}),
    "BINARYVALUES": ("fields", {"utf8_names": True, "utf8_values": False}),
    "BINARYFIELDS": ("fields", {"utf8_names": False}),
    "CORRUPT": ("corrupt", {}),
    "UTF8": ("text", {}),
    "BINARY": ("binary", {}),
    "BOOL": ("boolean", {}),
    "INT8": _integer(1),
    "INT16": _integer(2),
    "INT32": _integer(4),
    "INT64": _integer(8),
    "FLOAT32": ("real", {"width": 4}),
    "FLOAT64": ("real", {"width": 8}),
    "EPOCH_MS": _time(1000),
    "EPOCH_S": _time(1000000),
}
ENTRY_KINDS = {"id", "timestamp", "sequence", "fields", "corrupt"}


def type_argument(kind: str, settings: dict[str, Any]) -> bytes | None:
    """Return the type argument of XARROW for a kind and settings of Column; None if it has no such type."""
    plain = {name: value for name, value in settings.items() if name != "nullable"}
    for word, kind_and_settings in KIND_SETTINGS_BY_TYPE.items():
        if kind_and_settings == (kind, plain):
            return word.encode() + (b"" if settings.get("nullable", True) else b"!")
    return None


def parse_columns(words: list[bytes]) -> list[Column]:
    """Return the columns for the arguments name, type, name, type ... The name of a part of the entry is `*`.

    Raises:
        CommandError: for wrong arguments. A field, or a part of the entry, can be requested only once, so no
            reply is much larger than its entries.
    """
    if len(words) > 2 * COLUMNS_MAX or len(words) % 2:
        raise CommandError(f"ERR COLUMNS takes at most {COLUMNS_MAX} pairs of a name and a type")
    columns = []
    asked = set()
    for name, word in zip(words[::2], words[1::2], strict=True):
        kind, settings = _column_kind(word)
        whole = kind in ENTRY_KINDS
        if whole and name != NO_FIELD:
            raise CommandError(f"ERR a column of type {_shown(word)} is of the whole entry: name it *")
        what = kind if whole else name
        if what in asked:
            raise CommandError(f"ERR COLUMNS asks for '{_shown(word if whole else name)}' twice")
        asked.add(what)
        columns.append(Column(kind, b"" if whole else name, nullable=not word.endswith(b"!"), **settings))
    return columns


def _column_kind(word: bytes) -> tuple[str, dict[str, Any]]:
    kind_and_settings = KIND_SETTINGS_BY_TYPE.get(word.removesuffix(b"!").decode(errors="replace").upper())
    if kind_and_settings is None:
        raise CommandError(f"ERR COLUMNS has no type '{_shown(word)}'")
    return kind_and_settings


def _shown(word: bytes) -> str:
    return word[:SHOWN_ARGUMENT_BYTES_MAX].decode(errors="replace")
