"""Pydantic models, or classes with the same methods, as entries: a field for each attribute.

    form of an attribute                               stored as
    text: str, times, Decimal, UUID, enums of texts    that text
    number: int, float, bool, timedelta as a number    in decimal; true, false
    string: always a string in JSON, such as           that text; as JSON if the text itself looks like
            Literal["a"], Path, URLs                   a string of JSON
    JSON: all others                                   JSON

The model validates what it reads. An attribute that is None is not stored; one whose field is missing is None
if its type allows that. Computed fields are stored for other readers, and not read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from json.encoder import encode_basestring_ascii as _quote
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.api.codecs.model_facts import stored_attribute_name, string_attribute_names
from headrace.api.codecs.model_json import ModelJson, compact_json, unreadable_value_error
from headrace.api.codecs.text_codec import TEXT_CONVERTERS, strip_optional_and_nullable
from headrace.errors import CodecError

T = TypeVar("T")

JSON_FIELD = b"json"
NUMBER_TYPES = (int, float, bool)
JSON_BY_NONFINITE_REPR = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
TEXT_TYPES = frozenset(TEXT_CONVERTERS)


class FieldConverter(NamedTuple):
    """How an attribute is stored.

    encode: returns the text that is stored for a JSON value.
    decode: returns the JSON of what is stored; raises ValueError if it is not text, or not JSON.
    """

    encode: Callable[[Any], str]
    decode: Callable[[bytes], str]


class ModelCodec(Generic[T]):
    """The codec of a model whose model_fields lists its attributes.

    Raises CodecError if a declared attribute would be lost.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self._json = ModelJson(kind)
        self._field_converters: dict[str, FieldConverter] = {}  # by stored name
        self._keys: dict[str, str] = {}  # stored name to the key that the model validates, if they differ
        self._nullable: list[str] = []  # keys that are None if nothing is stored
        computed = {
            name: getattr(one, "alias", None) or name
            for name, one in (getattr(kind, "model_computed_fields", None) or {}).items()
        }
        self._computed = set(computed.values())
        self._stored_names: dict[str, str] = {}  # of keys that are dumped, if they differ
        if self._json.facts.dumps_by_name:
            self._stored_names = {
                name: stored_attribute_name(name, field) for name, field in kind.model_fields.items()
            }
            self._stored_names |= computed
        strings = string_attribute_names(kind) if self._json.is_pydantic else set()
        for name, field in kind.model_fields.items():
            stored = stored_attribute_name(name, field)
            if stored in self._field_converters or stored in self._computed:
                raise CodecError(f"{kind.__name__}.{name}: another attribute is stored as {stored!r}, too")
            plain, nullable = strip_optional_and_nullable(field.annotation)
            self._field_converters[stored] = _field_converter(plain, field, stored in strings)
            key = name if self._json.facts.validates_by_name else stored
            self._keys[stored] = key
            if nullable and getattr(field, "default", ...) is not None:
                self._nullable.append(key)

    def encode(self, value: T, /) -> dict[bytes, bytes]:
        """Return the attributes that are not None.

        Raises CodecError if the value is not an instance of the model, or would come back changed.
        """
        dumped = self._json.dump(value)
        if not isinstance(dumped, dict):
            raise CodecError(
                f"{self.kind.__name__} is dumped as {dumped!r}, not as its attributes: use a codec with"
                " encode() and decode()"
            )
        if self._computed and self._json.facts.dumps_round_trip:
            dumped |= self._json.dump(value, round_trip=False, include=set(self.kind.model_computed_fields))
        try:
            fields = {}
            for key, one in dumped.items():
                if one is not None:
                    name: str = self._stored_names.get(key) or key
                    fields[name.encode()] = (
                        self._field_converters.get(name, TEXT_FIELD_CONVERTER).encode(one).encode()
                    )
        except UnicodeEncodeError as wrong:
            raise CodecError(f"{value!r} cannot be written in UTF-8: {wrong.reason}") from wrong
        if not fields:
            raise CodecError(f"{value!r} has nothing to store: an entry has at least one field")
        if self._json.is_pydantic:
            try:
                back = self.decode(fields)
            except CodecError as wrong:
                raise unreadable_value_error(value, wrong) from wrong
            self._json.check_round_trip(value, back)
        return fields

    def decode(self, fields: dict[bytes, bytes], /) -> T:
        """Return an instance. Raises CodecError that names an attribute that the model rejects."""
        parts = dict.fromkeys(self._nullable, "null")
        for field, word in fields.items():
            name = field.decode()
            if name not in self._computed:
                try:
                    parts[self._keys.get(name, name)] = self._field_converters.get(
                        name, TEXT_FIELD_CONVERTER
                    ).decode(word)
                except ValueError as wrong:
                    raise CodecError(f"field '{name}' of {self.kind.__name__}: {wrong}") from wrong
        document = ",".join(f"{_quote(key)}:{value}" for key, value in parts.items())
        return self._json.read_json(f"{{{document}}}")  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return str(self.kind.__name__)


class WholeModelCodec(Generic[T]):
    """The codec of a model that does not list its attributes, or wraps one value: one field `json`."""

    def __init__(self, kind: type[T]) -> None:
        self.kind: Any = kind
        self._json = ModelJson(kind)

    def encode(self, value: T, /) -> dict[bytes, Any]:
        """Return the result of model_dump() as JSON. Raises CodecError if it would come back changed."""
        return {JSON_FIELD: compact_json(self._json.dump_round_trip_checked(value))}

    def decode(self, fields: dict[bytes, bytes], /) -> T:
        """Return the result of model_validate(). Raises KeyError if the entry has no field `json`."""
        return self._json.read(json.loads(fields[JSON_FIELD]))  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return str(self.kind.__name__)


def _field_converter(annotation: Any, field: Any, is_string: bool) -> FieldConverter:
    if any(type(mark).__name__ == "Json" for mark in getattr(field, "metadata", ())):
        return TEXT_FIELD_CONVERTER  # it is dumped as the text of its JSON, and reads that
    if isinstance(annotation, type):
        if annotation in NUMBER_TYPES:
            return FieldConverter(_write_number, _read_float if annotation is float else _read_number)
        if annotation is timedelta:  # a duration of ISO 8601; a number if ser_json_timedelta says so
            return FieldConverter(_write_number, _read_float)
        is_text_enum = issubclass(annotation, Enum) and all(isinstance(one.value, str) for one in annotation)
        if is_text_enum or annotation in TEXT_TYPES:
            return TEXT_FIELD_CONVERTER
    return STRING_FIELD_CONVERTER if is_string else JSON_FIELD_CONVERTER


def _write_text(value: Any) -> str:
    return value if isinstance(value, str) else _write_number(value)


def _write_number(value: Any) -> str:
    """Return the text of a number; JSON of what a serializer has made of it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return value if isinstance(value, str) else compact_json(value)


def _read_number(word: bytes) -> str:
    """Return an int or bool as JSON; any other text as a string, which the model may accept."""
    text = word.decode()
    digits = text.removeprefix("-")
    plain = digits.isdecimal() and digits.isascii() and (digits[0] != "0" or len(digits) == 1)
    return text if plain or text in ("true", "false") else _quote(text)


def _read_float(word: bytes) -> str:
    """Return a float as JSON; any other text as a string, which the model may accept."""
    text = word.decode()
    try:
        number = repr(float(text))
    except ValueError:
        return _quote(text)
    return JSON_BY_NONFINITE_REPR.get(number, number)


def _write_string(value: Any) -> str:
    if isinstance(value, str) and not _is_quoted(value.encode()):
        return value
    return compact_json(value)


def _read_string(word: bytes) -> str:
    return word.decode() if _is_quoted(word) else _quote(word.decode())  # older versions: always in quotes


def _read_text(word: bytes) -> str:
    return _quote(word.decode())


def _read_json(word: bytes) -> str:
    text = word.decode()
    json.loads(text)  # it must be one value, before it becomes a part of a document
    return text


def _is_quoted(word: bytes) -> bool:
    """Return whether it is a string of JSON."""
    if not (word.startswith(b'"') and word.endswith(b'"')):
        return False
    try:
        return isinstance(json.loads(word), str)
    except ValueError:
        return False


TEXT_FIELD_CONVERTER = FieldConverter(_write_text, _read_text)
STRING_FIELD_CONVERTER = FieldConverter(_write_string, _read_string)
JSON_FIELD_CONVERTER = FieldConverter(compact_json, _read_json)
