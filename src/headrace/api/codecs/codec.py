"""A stream's values in Python, and how they are encoded as the fields of an entry.

codec=           a value is                        stored as
None             a mapping of fields               those fields; they come back as bytes
"text"           a mapping of fields               those fields as UTF-8; they come back as str
"json"           any value that JSON represents    one field, `json`
a dataclass      an instance of it                 a field for each attribute
a model          an instance: pydantic, or a       a field for each attribute
                 class with the same methods
an object        an argument of its encode()       the result of its encode(), read by its decode()
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

FieldValue: TypeAlias = bytes | str | int | float
Fields: TypeAlias = Mapping[Any, FieldValue]  # names are str or bytes
RawFields: TypeAlias = dict[bytes, bytes]
JSON_FIELD = b"json"


class Codec(Protocol[T]):
    """Encodes values as entries and decodes entries.

    >>> class Comma:
    ...     def encode(self, value: list[int]) -> Mapping[str, str]:
    ...         return {"list": ",".join(map(str, value))}
    ...
    ...     def decode(self, fields: dict[bytes, bytes]) -> list[int]:
    ...         return [int(word) for word in fields[b"list"].split(b",")]

    A ValueError, TypeError or KeyError of decode() is raised as a CodecError that names the entry.
    """

    def encode(self, value: T, /) -> Fields:
        """Return the fields of a value, at least one, in the order in which they are stored."""

    def decode(self, fields: RawFields, /) -> T:
        """Return the value; ignore unknown fields."""


class PlainCodec:
    """Fields without conversion."""

    def encode(self, value: Fields, /) -> Fields:
        """Return the mapping itself."""
        return require_mapping(value)

    def decode(self, fields: RawFields, /) -> RawFields:
        """Return the fields."""
        return fields

    def __repr__(self) -> str:
        return "None"


class TextCodec:
    """Fields without conversion, decoded as UTF-8."""

    def encode(self, value: Fields, /) -> Fields:
        """Return the mapping itself."""
        return require_mapping(value)

    def decode(self, fields: RawFields, /) -> dict[str, str]:
        """Return names and values as text. Raises UnicodeDecodeError, a ValueError, if they are not UTF-8."""
        return {name.decode(): value.decode() for name, value in fields.items()}

    def __repr__(self) -> str:
        return "'text'"


class JsonCodec:
    """One field that contains the value as JSON."""

    def encode(self, value: Any, /) -> Fields:
        """Return the field `json`. Raises CodecError if JSON cannot represent the value, such as NaN."""
        try:
            document = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return {JSON_FIELD: document}
        except (TypeError, ValueError) as wrong:
            raise CodecError(f"{value!r} cannot be stored as JSON: {wrong}") from wrong

    def decode(self, fields: RawFields, /) -> Any:
        """Return the value. Raises KeyError if the entry has no field `json`."""
        return json.loads(fields[JSON_FIELD])

    def __repr__(self) -> str:
        return "'json'"


PLAIN_CODEC = PlainCodec()
CODECS_BY_NAME: dict[str | None, Codec[Any]] = {None: PLAIN_CODEC, "text": TextCodec(), "json": JsonCodec()}


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
    """Return the codec for a stream's option `codec`. Raises CodecError if it is invalid."""
    if spec is None or isinstance(spec, str):
        if spec in CODECS_BY_NAME:
            return CODECS_BY_NAME[spec]
    elif isinstance(spec, type):
        if hasattr(spec, "model_validate") and hasattr(spec, "model_dump"):
            # It dumps the wrapped value, not attributes.
            rooted = getattr(spec, "__pydantic_root_model__", False)
            has_fields = bool(getattr(spec, "model_fields", None)) and not rooted
            return ModelCodec(spec) if has_fields else WholeModelCodec(spec)
        if dataclasses.is_dataclass(spec):
            return DataclassCodec(spec)
    elif callable(getattr(spec, "encode", None)) and callable(getattr(spec, "decode", None)):
        return spec  # type: ignore[no-any-return]
    raise CodecError(
        f'{spec!r} is not a codec: pass "text", "json", a dataclass, a pydantic model,'
        " or an object with encode() and decode()"
    )


def require_mapping(value: Any) -> Fields:
    """Return the value if it is a mapping. Raises CodecError otherwise."""
    if isinstance(value, (dict, Mapping)):  # dict first: an ABC check is slow
        return value
    raise CodecError(
        f"an entry is a mapping of fields, not {value!r}; to store other values open the stream with codec="
    )
