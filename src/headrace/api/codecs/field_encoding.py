"""An entry's fields as the words of a request: the shortest way, for every add() comes along here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cython

from headrace.errors import CodecError


@cython.cfunc
def word_of(value: object) -> bytes:
    """A field's name or value as bytes: str in UTF-8, numbers in decimal."""
    text: str
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        text = value
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError as wrong:
            raise CodecError(f"{value!r} cannot be written in UTF-8: {wrong.reason}; give bytes") from None
    if isinstance(value, bool):
        raise CodecError(f"{value} is no field: write 0 or 1, or give the stream a codec")
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        return repr(value).encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise CodecError(f"{value!r} is no field: make it bytes, str, int or float, or give the stream a codec")


@cython.cfunc
def put(argv: list[bytes], fields: object) -> cython.void:
    """Append names and values."""
    if not fields:
        raise CodecError("an entry has at least one field")
    if type(fields) is dict:  # walked without an iterator
        plain: dict[Any, Any] = fields
        for name, value in plain.items():
            argv.append(word_of(name))
            argv.append(word_of(value))
        return
    if not isinstance(fields, Mapping):
        raise CodecError(
            f"an entry is a mapping of fields, not {fields!r}; to store other values open the stream with"
            " codec="
        )
    for name, value in fields.items():
        argv.append(word_of(name))
        argv.append(word_of(value))


@cython.ccall
def words_of(fields: object) -> list[bytes]:
    """Names and values in turns. CodecError for what is no field, and if there is none."""
    words: list[bytes] = []
    put(words, fields)
    return words
