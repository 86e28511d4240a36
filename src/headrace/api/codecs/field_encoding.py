"""Encode an entry's fields as arguments of a request. Every add() calls this, so it is kept short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cython

from headrace.errors import CodecError


@cython.cfunc
def encode_value(value: object) -> bytes:
    """Return a field's name or value as bytes: str in UTF-8, numbers in decimal.

    Raises CodecError for values of other types, and for str that cannot be encoded.
    """
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
        raise CodecError(f"{value} is not a field: pass 0 or 1, or open the stream with a codec")
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        return repr(value).encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise CodecError(
        f"{value!r} is not a field: pass bytes, str, int or float, or open the stream with a codec"
    )


@cython.cfunc
def append_fields(argv: list[bytes], fields: object) -> cython.void:
    """Append names and values to argv. Raises CodecError for an invalid field, or if there is none."""
    if not fields:
        raise CodecError("an entry has at least one field")
    if type(fields) is dict:  # iterated at C speed, without an iterator object
        plain: dict[Any, Any] = fields
        for name, value in plain.items():
            argv.append(encode_value(name))
            argv.append(encode_value(value))
        return
    if not isinstance(fields, Mapping):
        raise CodecError(
            f"an entry is a mapping of fields, not {fields!r}; to store other values open the stream with"
            " codec="
        )
    for name, value in fields.items():
        argv.append(encode_value(name))
        argv.append(encode_value(value))


@cython.ccall
def encode_fields(fields: object) -> list[bytes]:
    """Return names and values alternately. Raises CodecError for an invalid field, or if there is none."""
    words: list[bytes] = []
    append_fields(words, fields)
    return words
