"""Dataclasses as entries: a field for each attribute, so that other clients, and Spark, read them by name.

An attribute that is None is left out. An attribute whose field is missing is None if its type allows that,
else its default: so a class may grow attributes while old entries are still there. Lists and dicts are JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from headrace.api.scalars import Words, without_none, words_for
from headrace.errors import CodecError

T = TypeVar("T")

JSON_WORDS: Words = (lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")), json.loads)
JSON_TYPES = (str, int, float, bool, type(None), Any, list, dict)


@dataclasses.dataclass(frozen=True)
class Attribute:
    """One attribute of a dataclass. missing: what it is if the entry lacks its field, when that is said."""

    name: str
    field: bytes
    write: Callable[[Any], Any]
    read: Callable[[bytes], Any]
    nullable: bool
    required: bool


class RecordCodec(Generic[T]):
    """The codec of a dataclass. CodecError for an attribute of a type that it does not know.

    >>> @dataclasses.dataclass
    ... class Order:
    ...     customer: str
    ...     cents: int
    >>> RecordCodec(Order).encode(Order("ada", 999))
    {b'customer': 'ada', b'cents': 999}
    """

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        try:
            hints = get_type_hints(kind, include_extras=True)
        except NameError as unknown:  # annotations are text, and this one names a class inside a function
            raise CodecError(f"the types of {kind.__name__}'s attributes: {unknown}") from unknown
        for name, hint in hints.items():
            if isinstance(hint, dataclasses.InitVar):
                raise CodecError(f"{kind.__name__}.{name} is an InitVar: what it was is not known afterwards")
        fields = [field for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
        self._attributes = [_attribute(kind, field, hints[field.name]) for field in fields]

    def encode(self, value: T, /) -> dict[bytes, Any]:
        """The attributes that are not None; CodecError for what is no instance of the class."""
        if not isinstance(value, self.kind):
            raise CodecError(f"this stream is of {self.kind.__name__}, and cannot take {value!r}")
        fields = {}
        for one in self._attributes:
            attribute = getattr(value, one.name)
            if attribute is None and one.nullable:
                continue
            try:
                fields[one.field] = one.write(attribute)
            except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as wrong:
                raise CodecError(
                    f"{self.kind.__name__}.{one.name}: cannot store {attribute!r}: {wrong}"
                ) from wrong
        if not fields:
            raise CodecError(f"{value!r} has nothing to store: an entry has at least one field")
        return fields

    def decode(self, fields: dict[bytes, bytes], /) -> T:
        """An instance; CodecError that names the attribute that is missing or cannot be read."""
        values: dict[str, Any] = {}
        for one in self._attributes:
            word = fields.get(one.field)
            if word is not None:
                try:
                    values[one.name] = one.read(word)
                except (TypeError, ValueError) as wrong:
                    raise CodecError(f"field {one.name!r} of {self.kind.__name__}: {wrong}") from wrong
            elif one.nullable:
                values[one.name] = None
            elif one.required:
                raise CodecError(f"there is no field {one.name!r}, which {self.kind.__name__} needs")
        return self.kind(**values)

    def __repr__(self) -> str:
        return self.kind.__name__


def _attribute(kind: type[Any], field: dataclasses.Field[Any], annotation: Any) -> Attribute:
    plain, nullable = without_none(annotation)
    words = words_for(plain) or (JSON_WORDS if _is_json(plain) else None)
    if words is None:
        raise CodecError(
            f"{kind.__name__}.{field.name} is of a type that has no field of its own: {annotation}."
            " Use a pydantic model, or codec with encode() and decode()"
        )
    no_default = dataclasses.MISSING
    required = field.default is no_default and field.default_factory is no_default
    return Attribute(field.name, field.name.encode(), *words, nullable, required)


def _is_json(annotation: Any) -> bool:
    """Whether JSON says values of this type, and reads them as the same again."""
    plain, _ = without_none(annotation)
    if get_origin(plain) is list:
        return all(map(_is_json, get_args(plain)))
    if get_origin(plain) is dict:
        key, value = get_args(plain)
        return key is str and _is_json(value)
    return plain in JSON_TYPES
