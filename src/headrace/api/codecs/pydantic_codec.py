"""Pydantic models, or classes with the same methods, as entries: a field for each attribute.

Text, numbers and times are plain text; all others are JSON. The model validates what it reads. An attribute
that is None is not stored; one whose field is missing is None if its type allows that.
"""

from __future__ import annotations

import json
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

from headrace.api.codecs.text_codec import TEXT_CONVERTERS, strip_optional
from headrace.errors import CodecError

T = TypeVar("T")

JSON_FIELD = b"json"
TEXT = frozenset(TEXT_CONVERTERS) | {timedelta}


class ModelCodec(Generic[T]):
    """The codec of a model whose model_fields lists its attributes."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self._json: set[str] = set()  # attributes that are stored as JSON
        self._nullable: set[str] = set()
        for name, field in kind.model_fields.items():
            stored = getattr(field, "alias", None) or name
            plain, nullable = strip_optional(field.annotation)
            if nullable:
                self._nullable.add(stored)
            if not _is_text(plain):
                self._json.add(stored)

    def encode(self, value: T, /) -> dict[bytes, Any]:
        """Return the attributes that are not None.

        Raises CodecError if the value is not an instance of the model.
        """
        if not isinstance(value, self.kind):
            raise CodecError(f"this stream is of {self.kind.__name__}, and cannot take {value!r}")
        try:
            dumped: dict[str, Any] = value.model_dump(mode="json", by_alias=True)
        except ValueError as wrong:
            raise CodecError(f"{value!r} cannot be stored as text: {wrong}") from wrong
        fields = {
            name.encode(): _compact(one) if name in self._json else _text(one)
            for name, one in dumped.items()
            if one is not None
        }
        if not fields:
            raise CodecError(f"{value!r} has nothing to store: an entry has at least one field")
        return fields

    def decode(self, fields: dict[bytes, bytes], /) -> T:
        """Return an instance.

        Raises ValueError, the base of pydantic's errors, if the model rejects the fields.
        """
        values: dict[str, Any] = dict.fromkeys(self._nullable)
        for field, word in fields.items():
            name = field.decode()
            values[name] = json.loads(word) if name in self._json else word.decode()
        return self.kind.model_validate(values)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return str(self.kind.__name__)


class WholeModelCodec(Generic[T]):
    """The codec of a model that does not list its attributes: one field `json`."""

    def __init__(self, kind: type[T]) -> None:
        self.kind: Any = kind

    def encode(self, value: T, /) -> dict[bytes, Any]:
        """Return the result of model_dump() as JSON."""
        if not isinstance(value, self.kind):
            raise CodecError(f"this stream is of {self.kind.__name__}, and cannot take {value!r}")
        return {JSON_FIELD: _compact(value.model_dump())}

    def decode(self, fields: dict[bytes, bytes], /) -> T:
        """Return the result of model_validate(). Raises KeyError if the entry has no field `json`."""
        return self.kind.model_validate(json.loads(fields[JSON_FIELD]))  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return str(self.kind.__name__)


def _is_text(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return all(isinstance(member.value, str) for member in annotation)
    return isinstance(annotation, type) and annotation in TEXT


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str | int | float) else _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
