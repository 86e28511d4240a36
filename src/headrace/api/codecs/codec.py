"""What a stream's values are in Python, and how they become the fields of an entry.

codec=           a value is                        stored as
None             a mapping of fields               those fields; bytes come back
"text"           a mapping of fields               those fields; str comes back, UTF-8
"json"           whatever JSON can say             one field, `json`
a dataclass      an instance of it                 a field for each attribute
a model          an instance: pydantic, or         a field for each attribute
                 what has its methods
an object        what its encode() takes           what its encode() returns: two methods make a codec
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

from headrace.api.codecs.dataclass_codec import DataclassCodec
from headrace.api.codecs.pydantic_codec import ModelCodec, WholeModelCodec
from headrace.errors import CodecError

T = TypeVar("T")

Word: TypeAlias = bytes | str | int | float
Fields: TypeAlias = Mapping[Any, Word]  # by names that are str or bytes
RawFields: TypeAlias = dict[bytes, bytes]
JSON_FIELD = b"json"


class Codec(Protocol[T]):
    """Makes entries of values and values of entries.

    >>> class Comma:
    ...     def encode(self, value: list[int]) -> Mapping[str, str]:
    ...         return {"list": ",".join(map(str, value))}
    ...
    ...     def decode(self, fields: dict[bytes, bytes]) -> list[int]:
    ...         return [int(word) for word in fields[b"list"].split(b",")]

    A ValueError, TypeError or KeyError that decode() raises is shown as a CodecError that names the entry.
    """

    def encode(self, value: T, /) -> Fields:
        """The fields, at least one, in the order in which they are stored."""

    def decode(self, fields: RawFields, /) -> T:
        """The value; fields that it does not know should not disturb it."""


class PlainCodec:
    """Fields as they are."""

    def encode(self, value: Fields, /) -> Fields:
        """The mapping itself."""
        return fields_of(value)

    def decode(self, fields: RawFields, /) -> RawFields:
        """The fields."""
        return fields

    def __repr__(self) -> str:
        return "None"


class TextCodec:
    """Fields as they are, read as UTF-8."""

    def encode(self, value: Fields, /) -> Fields:
        """The mapping itself."""
        return fields_of(value)

    def decode(self, fields: RawFields, /) -> dict[str, str]:
        """Names and values as text; UnicodeDecodeError, which is a ValueError, for what is none."""
        return {name.decode(): value.decode() for name, value in fields.items()}

    def __repr__(self) -> str:
        return "'text'"


class JsonCodec:
    """One field that holds the value as JSON."""

    def encode(self, value: Any, /) -> Fields:
        """The field `json`; CodecError for what JSON cannot say."""
        try:
            return {JSON_FIELD: json.dumps(value, ensure_ascii=False, separators=(",", ":"))}
        except (TypeError, ValueError) as wrong:
            raise CodecError(f"{value!r} cannot be stored as JSON: {wrong}") from wrong

    def decode(self, fields: RawFields, /) -> Any:
        """The value; KeyError if the entry has no field `json`."""
        return json.loads(fields[JSON_FIELD])

    def __repr__(self) -> str:
        return "'json'"


PLAIN = PlainCodec()
NAMED: dict[str | None, Codec[Any]] = {None: PLAIN, "text": TextCodec(), "json": JsonCodec()}


@overload
def codec_for(spec: None) -> Codec[RawFields]: ...
@overload
def codec_for(spec: Literal["text"]) -> Codec[dict[str, str]]: ...
@overload
def codec_for(spec: Literal["json"]) -> Codec[Any]: ...
@overload
def codec_for(spec: type[T]) -> Codec[T]: ...
@overload
def codec_for(spec: Codec[T]) -> Codec[T]: ...


def codec_for(spec: Any) -> Codec[Any]:
    """The codec that a stream's option `codec` means; CodecError if it means none."""
    if spec is None or isinstance(spec, str):
        if spec in NAMED:
            return NAMED[spec]
    elif isinstance(spec, type):
        if hasattr(spec, "model_validate") and hasattr(spec, "model_dump"):
            rooted = getattr(spec, "__pydantic_root_model__", False)  # it dumps what it wraps, no attributes
            has_fields = bool(getattr(spec, "model_fields", None)) and not rooted
            return ModelCodec(spec) if has_fields else WholeModelCodec(spec)
        if dataclasses.is_dataclass(spec):
            return DataclassCodec(spec)
    elif callable(getattr(spec, "encode", None)) and callable(getattr(spec, "decode", None)):
        return spec  # type: ignore[no-any-return]
    raise CodecError(
        f'{spec!r} is no codec: give "text", "json", a dataclass, a pydantic model,'
        " or an object with encode() and decode()"
    )


def fields_of(value: Any) -> Fields:
    """The value if it is a mapping of fields, and CodecError if not."""
    if isinstance(value, (dict, Mapping)):  # dict first: asking an ABC takes time
        return value
    raise CodecError(
        f"an entry is a mapping of fields, not {value!r}; to store other values open the stream with codec="
    )
