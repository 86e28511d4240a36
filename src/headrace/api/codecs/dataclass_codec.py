"""Dataclasses as entries: a field for each attribute, so that other clients, and Spark, read them by name.

Text, numbers, times, UUIDs and enums are plain text (text_codec.py). Lists, dicts, tuples, sets and other
dataclasses are JSON (json_codec.py).
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from headrace.api.codecs.attributes import DataclassAttributes, EncodeDecodePair, InvalidNestedValue
from headrace.api.codecs.field_encoding import encode_fields
from headrace.api.codecs.json_codec import JsonConverters
from headrace.api.codecs.text_codec import text_converter
from headrace.errors import CodecError

T = TypeVar("T")


class DataclassCodec(Generic[T]):
    """The codec of a dataclass. Raises CodecError for an attribute of an unsupported type.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Order:
    ...     customer: str
    ...     cents: int
    >>> DataclassCodec(Order).encode(Order("ada", 999))
    {b'customer': b'ada', b'cents': 999}
    """

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        shapes = JsonConverters()

        def converter_for(annotation: Any) -> EncodeDecodePair | None:
            return text_converter(annotation) or shapes.json_text_converter(annotation)

        self._attributes = DataclassAttributes(kind, str.encode, converter_for)

    def encode(self, value: T, /) -> dict[bytes, Any]:
        """Return the attributes that are not None. Raises CodecError that names an invalid one."""
        if not isinstance(value, self.kind):
            raise CodecError(f"this stream is of {self.kind.__name__}, and cannot take {value!r}")
        try:
            fields = self._attributes.encode(value)
            if self._attributes.needs_round_trip_check:
                words = encode_fields(fields)
                self._attributes.check_round_trip(value, dict(zip(words[::2], words[1::2], strict=True)))
        except InvalidNestedValue as wrong:
            where = f"{self.kind.__name__}{wrong.path}"
            raise CodecError(f"{where}: cannot store {wrong.value!r}: {wrong.reason}") from wrong
        if not fields:
            raise CodecError(f"{value!r} has nothing to store: an entry has at least one field")
        return fields

    def decode(self, fields: dict[bytes, bytes], /) -> T:
        """Return an instance. Raises CodecError that names a missing or invalid attribute."""
        try:
            return self._attributes.decode(fields)  # type: ignore[no-any-return]
        except InvalidNestedValue as wrong:
            where = f"field '{wrong.path[1:]}' of {self.kind.__name__}"
            raise CodecError(f"{where}: {wrong.reason}") from wrong

    def __repr__(self) -> str:
        return self.kind.__name__
