"""Types of attributes that are stored as plain text: each has one way to be written, and one to be read.

str bytes              as they are            datetime date time     ISO 8601
int float Decimal      in decimal             UUID                   with hyphens
bool                   true, false            Enum                   the text of the member's value
                                              Literal of texts       as they are
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

Words = tuple[Callable[[Any], Any], Callable[[bytes], Any]]  # the way there, and the way back
BOOLEANS = {b"true": True, b"false": False, b"1": True, b"0": False}


def read_bool(word: bytes) -> bool:
    """What a word says of yes and no; ValueError if nothing."""
    if word not in BOOLEANS:
        raise ValueError(f"{word!r} is neither true nor false")
    return BOOLEANS[word]


def only(kind: Any, write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The way there for values of that type; TypeError for others: they would come back as others."""

    def checked(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"it is no {kind.__name__}")
        return write(value)

    return checked


def write_date(value: date) -> str:
    """A date; TypeError for a datetime, which is one, too, and more."""
    if isinstance(value, datetime):
        raise TypeError("it is a datetime, and no date")
    return value.isoformat()


def one_of(values: tuple[Any, ...]) -> Callable[[Any], Any]:
    """As it is, if it is one of those; ValueError for another."""

    def checked(value: Any) -> Any:
        if value not in values:
            raise ValueError(f"it is none of {', '.join(map(repr, values))}")
        return value

    return checked


SCALARS: dict[type, Words] = {
    str: (only(str, str), bytes.decode),
    bytes: (only(bytes, bytes), bytes),
    int: (index, int),
    float: (lambda value: repr(float(value)), float),
    bool: (only(bool, lambda value: "true" if value else "false"), read_bool),
    Decimal: (only(Decimal, str), lambda word: Decimal(word.decode())),
    UUID: (only(UUID, str), lambda word: UUID(word.decode())),
    datetime: (only(datetime, datetime.isoformat), lambda word: datetime.fromisoformat(word.decode())),
    date: (only(date, write_date), lambda word: date.fromisoformat(word.decode())),
    time: (only(time, time.isoformat), lambda word: time.fromisoformat(word.decode())),
}


def without_none(annotation: Any) -> tuple[Any, bool]:
    """An annotation freed of `| None`, Annotated and NewType, and whether None was among what it allows."""
    if get_origin(annotation) is Annotated:
        return without_none(get_args(annotation)[0])
    if isinstance(annotation, NewType):
        return without_none(annotation.__supertype__)
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, annotation in (Any, None, type(None))
    parts = get_args(annotation)
    others = [part for part in parts if part is not type(None)]
    if len(others) == 1:
        return without_none(others[0])[0], len(parts) > 1
    return annotation, len(others) < len(parts)


def words_for(annotation: Any) -> Words | None:
    """How values of that type are written and read, or None if they are no plain text."""
    if annotation in SCALARS:
        return SCALARS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        members = {str(member.value).encode(): member for member in annotation}
        if len(members) == len(annotation):
            texts = {member: name.decode() for name, member in members.items()}
            return (lambda member: texts[annotation(member)], lambda word: _member(members, word))
    if get_origin(annotation) is Literal and all(isinstance(one, str) for one in get_args(annotation)):
        known = one_of(get_args(annotation))
        return (known, lambda word: known(word.decode()))
    return None


def _member(members: dict[bytes, Enum], word: bytes) -> Enum:
    if word not in members:
        raise ValueError(f"{word!r} is none of {', '.join(name.decode() for name in members)}")
    return members[word]
