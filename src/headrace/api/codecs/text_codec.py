"""Types of attributes that are stored as plain text, each with one way to write and one to read it.

str bytes              unchanged              datetime date time     ISO 8601
int float Decimal      in decimal             UUID                   with hyphens
bool                   true, false            Enum                   the text of the member's value
                                              Literal of texts       unchanged
"""

from __future__ import annotations

import types
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from operator import index
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin
from uuid import UUID

TextEncodeDecodePair = tuple[Callable[[Any], Any], Callable[[bytes], Any]]  # (encode, decode)
BOOL_BY_TEXT = {b"true": True, b"false": False, b"1": True, b"0": False}


def read_bool(word: bytes) -> bool:
    """Parse a bool. Raises ValueError for other text."""
    if word not in BOOL_BY_TEXT:
        raise ValueError(f"{word!r} is neither true nor false")
    return BOOL_BY_TEXT[word]


def type_checked_encoder(kind: Any, write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that calls write() for values of a type, and raises TypeError for others."""

    def checked(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}")
        return write(value)

    return checked


def write_date(value: date) -> str:
    """Return a date as text. Raises TypeError for a datetime, which is a subclass with more information."""
    if isinstance(value, datetime):
        raise TypeError("expected date, got datetime")
    return value.isoformat()


def one_of_checker(values: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Return a function that returns its argument, or raises ValueError if it is not one of `values`."""

    def checked(value: Any) -> Any:
        if value not in values:
            raise ValueError(f"expected one of {', '.join(map(repr, values))}")
        return value

    return checked


TEXT_CONVERTERS: dict[type, TextEncodeDecodePair] = {
    str: (type_checked_encoder(str, str), bytes.decode),
    bytes: (type_checked_encoder(bytes, bytes), bytes),
    int: (index, int),
    float: (lambda value: repr(float(value)), float),
    bool: (type_checked_encoder(bool, lambda value: "true" if value else "false"), read_bool),
    Decimal: (type_checked_encoder(Decimal, str), lambda word: Decimal(word.decode())),
    UUID: (type_checked_encoder(UUID, str), lambda word: UUID(word.decode())),
    datetime: (
        type_checked_encoder(datetime, datetime.isoformat),
        lambda word: datetime.fromisoformat(word.decode()),
    ),
    date: (type_checked_encoder(date, write_date), lambda word: date.fromisoformat(word.decode())),
    time: (type_checked_encoder(time, time.isoformat), lambda word: time.fromisoformat(word.decode())),
}


def resolve_alias(annotation: Any) -> Any:
    """Return what the name of a `type` statement stands for; other annotations unchanged."""
    while type(annotation).__name__ == "TypeAliasType":
        annotation = annotation.__value__
    return annotation


def strip_optional_and_nullable(annotation: Any) -> tuple[Any, bool]:
    """Return an annotation without `| None`, Annotated, NewType and aliases, and whether it allows None."""
    annotation = resolve_alias(annotation)
    if get_origin(annotation) is Annotated:
        return strip_optional_and_nullable(get_args(annotation)[0])
    if isinstance(annotation, NewType):
        return strip_optional_and_nullable(annotation.__supertype__)
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, annotation in (Any, None, type(None))
    parts = get_args(annotation)
    others = [part for part in parts if part is not type(None)]
    if len(others) == 1:
        return strip_optional_and_nullable(others[0])[0], len(parts) > 1
    return annotation, len(others) < len(parts)


def text_converter(annotation: Any) -> TextEncodeDecodePair | None:
    """Return how values of that type are written and read; None if they are not plain text."""
    if annotation in TEXT_CONVERTERS:
        return TEXT_CONVERTERS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        members = {str(member.value).encode(): member for member in annotation}
        if len(members) == len(annotation):
            texts = {member: name.decode() for name, member in members.items()}
            return (lambda member: texts[annotation(member)], lambda word: _member(members, word))
    if get_origin(annotation) is Literal and all(isinstance(one, str) for one in get_args(annotation)):
        known = one_of_checker(get_args(annotation))
        return (known, lambda word: known(word.decode()))
    return None


def _member(members: dict[bytes, Enum], word: bytes) -> Enum:
    if word not in members:
        raise ValueError(f"{word!r} is not one of {', '.join(name.decode() for name in members)}")
    return members[word]
