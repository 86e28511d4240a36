"""Types of attributes that are stored as JSON, and their JSON form.

list set frozenset, tuple           an array            dataclass     an object of its attributes
dict, its keys plain text           an object           model         an object, as it dumps itself
str int float bool, Any             unchanged           None          null
datetime Decimal UUID Enum …        its plain text (text_codec.py), as a string

Not supported: bytes, which are not text, and unions of several types, because the JSON would not show the
type.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args, get_origin

from headrace.api.codecs.attributes import (
    CONVERSION_ERRORS,
    DataclassAttributes,
    EncodeDecodePair,
    InvalidNestedValue,
)
from headrace.api.codecs.model_json import ModelJson, compact_json
from headrace.api.codecs.text_codec import one_of_checker, strip_optional_and_nullable, text_converter

JSON_ARRAY_TYPES = (list, set, frozenset)
UNCHANGED_TYPES = (str, int, bool, list, dict)


class JsonConverters:
    """Converters between types and JSON values. It caches classes, which may refer to each other."""

    def __init__(self) -> None:
        self._classes: dict[type, DataclassAttributes] = {}

    def json_text_converter(self, annotation: Any) -> EncodeDecodePair | None:
        """Return the functions that encode a value of that type to JSON and decode it.

        None if JSON cannot represent such values.
        """
        converter = self.converter_of(annotation)
        if converter is None:
            return None
        encode, decode = converter
        return (lambda value: compact_json(encode(value)), lambda word: decode(json.loads(word)))

    def converter_of(self, annotation: Any) -> EncodeDecodePair | None:
        """Return how values of that type are converted to JSON values; None if that is not possible."""
        plain, nullable = strip_optional_and_nullable(annotation)
        if plain in (Any, None, type(None)):
            return (identity, identity)
        converter = self._of_plain(plain)
        return nullable_converter(converter) if nullable and converter is not None else converter

    def _of_plain(self, kind: Any) -> EncodeDecodePair | None:
        origin, inner = get_origin(kind), get_args(kind)
        if kind in UNCHANGED_TYPES:
            return (type_checker(kind), type_checker(kind))
        if kind is float:
            return (to_float, to_float)
        if origin is Literal:
            return (one_of_checker(inner), one_of_checker(inner))
        if origin in JSON_ARRAY_TYPES:
            item = self.converter_of(inner[0])
            return item and array_converter(origin, item)
        if origin is tuple and len(inner) == 2 and inner[1] is ...:
            item = self.converter_of(inner[0])
            return item and array_converter(tuple, item)
        if origin is tuple:
            items = [self.converter_of(each) for each in inner]
            return None if None in items else tuple_converter(items)  # type: ignore[arg-type]
        if origin is dict:
            names, value = text_converter(inner[0]), self.converter_of(inner[1])
            return dict_converter(names, value) if names and value and inner[0] is not bytes else None
        if dataclasses.is_dataclass(kind):
            return self._of_class(kind)  # type: ignore[arg-type]
        if hasattr(kind, "model_validate") and hasattr(kind, "model_dump"):
            return model_converter(kind)
        words = text_converter(kind)
        return None if words is None or kind is bytes else json_string_converter(*words)

    def _of_class(self, kind: type[Any]) -> EncodeDecodePair:
        if kind not in self._classes:
            self._classes[kind] = None  # type: ignore[assignment]
            self._classes[kind] = DataclassAttributes(kind, str, self.converter_of)
        checked = type_checker(kind)
        is_object = type_checker(dict)

        def encode(value: Any) -> dict[Any, Any]:
            attributes = self._classes[kind]
            stored = attributes.encode(checked(value))
            if attributes.needs_round_trip_check:
                attributes.check_round_trip(value, stored)
            return stored

        return (
            encode,
            lambda stored: self._classes[kind].decode(is_object(stored)),
        )


def identity(value: Any) -> Any:
    """Return the value."""
    return value


def type_checker(kind: type[Any]) -> Callable[[Any], Any]:
    """Return a function that returns its argument, and raises TypeError if that has another type."""

    def checked(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}")
        return value

    return checked


def to_float(value: Any) -> float:
    """Return a float. Raises TypeError if it is not a number."""
    if not isinstance(value, int | float):
        raise TypeError("expected float")
    return float(value)


def nullable_converter(converter: EncodeDecodePair) -> EncodeDecodePair:
    """Return a converter that also converts None, to null."""
    encode, decode = converter
    return (
        lambda value: None if value is None else encode(value),
        lambda value: None if value is None else decode(value),
    )


def json_string_converter(write: Callable[[Any], Any], read: Callable[[bytes], Any]) -> EncodeDecodePair:
    """Return a converter that stores plain text as a JSON string."""
    is_text = type_checker(str)
    return (write, lambda stored: read(is_text(stored).encode()))


def convert_items(way: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """Convert all items. Raises InvalidNestedValue with the index of an invalid one."""
    found = []
    for n, value in enumerate(values):
        try:
            found.append(way(value))
        except CONVERSION_ERRORS as wrong:
            raise InvalidNestedValue(f"[{n}]", value, wrong) from wrong
    return found


def array_converter(kind: type[Any], item: EncodeDecodePair) -> EncodeDecodePair:
    """Return the converter of a list, set, frozenset or tuple with items of one type.

    Sets are sorted, so that equal sets are stored equally.
    """
    checked, is_array = type_checker(kind), type_checker(list)
    ordered = kind in (set, frozenset)

    def encode(value: Any) -> list[Any]:
        found = convert_items(item[0], checked(value))
        return sorted(found, key=compact_json) if ordered else found

    return (encode, lambda stored: kind(convert_items(item[1], is_array(stored))))


def tuple_converter(items: list[EncodeDecodePair]) -> EncodeDecodePair:
    """Return the converter of a tuple with a type for each item."""
    is_tuple, is_array = type_checker(tuple), type_checker(list)

    def walk(values: Any, side: int) -> list[Any]:
        if len(values) != len(items):
            raise ValueError(f"expected {len(items)} items, got {len(values)}")
        converter = iter(items)
        return convert_items(lambda value: next(converter)[side](value), values)

    return (lambda value: walk(is_tuple(value), 0), lambda stored: tuple(walk(is_array(stored), 1)))


def dict_converter(
    names: tuple[Callable[[Any], Any], Callable[[bytes], Any]], value: EncodeDecodePair
) -> EncodeDecodePair:
    """Return the converter of a dict.

    Args:
        names: the functions that encode a key as text and decode it.
        value: the converter of the values.
    """
    is_dict = type_checker(dict)

    def walk(entries: Any, key: Callable[[Any], Any], way: Callable[[Any], Any]) -> dict[Any, Any]:
        found = {}
        for name, one in is_dict(entries).items():
            try:
                found[key(name)] = way(one)
            except CONVERSION_ERRORS as wrong:
                raise InvalidNestedValue(f"[{name!r}]", one, wrong) from wrong
        return found

    return (
        lambda given: walk(given, lambda name: str(names[0](name)), value[0]),
        lambda stored: walk(stored, lambda name: names[1](name.encode()), value[1]),
    )


def model_converter(kind: Any) -> EncodeDecodePair:
    """Return the converter of a pydantic model, or a class with the same methods."""
    model, checked = ModelJson(kind), type_checker(kind)
    return (lambda value: model.dump_round_trip_checked(checked(value)), model.read)
