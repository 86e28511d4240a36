"""Find the first part of a value that would differ when it is read back after it was stored.

Models and dataclasses are compared attribute by attribute: a model's private attributes and a dataclass's
fields with compare=False are not stored, and not compared. NaN equals NaN.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()
PLAIN_TYPES = frozenset({str, int, float, bool, bytes, type(None), Decimal, datetime, date})
SHOWN_VALUE_CHARS_MAX = 200  # characters of a value in a message


def first_changed_part(value: Any, back: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Return the path, the value and what it would come back as, for the first part that changes.

    None: nothing changes.
    """
    kind: Any = type(value)
    if kind in PLAIN_TYPES and kind is type(back) and value == back:  # nearly always: the rest is slower
        return None
    if value is back:
        return None
    if not _same_type(value, back):
        return path, value, back
    names = _attribute_names(kind)
    if names is not None:
        return _attribute_difference(value, back, names, path)
    if isinstance(value, dict):
        if value.keys() != back.keys():
            return path, value, back
        pairs = ((f"[{key!r}]", one, back[key]) for key, one in value.items())
        return _first_difference(pairs, path)
    if isinstance(value, list | tuple):
        if len(value) != len(back):
            return path, value, back
        return _first_difference(((f"[{n}]", one, back[n]) for n, one in enumerate(value)), path)
    return None if _equal(value, back) else (path, value, back)


def _equal(value: Any, back: Any) -> bool:
    """Return whether two values are the same, or both are NaN."""
    if isinstance(value, datetime) and value.tzinfo and isinstance(back, datetime) and back.tzinfo:
        # In the hour that a zone has twice, a time equals none of another zone: PEP 495.
        with suppress(OverflowError):
            value, back = value.astimezone(UTC), back.astimezone(UTC)
    both_nan = value != value and back != back
    return bool(both_nan or value == back)


def describe_difference(value: Any, back: Any) -> str:
    """Return the end of an error message: how a stored value would differ when it is read again."""
    if value is MISSING:
        return f"is not set, and would come back as {short_repr(back)}"
    return "would be lost" if back is MISSING else f"would come back as {short_repr(back)}"


def short_repr(value: Any) -> str:
    """Return the repr of a value for a message, cut after SHOWN_VALUE_CHARS_MAX characters."""
    text = repr(value)
    return text if len(text) <= SHOWN_VALUE_CHARS_MAX else f"{text[:SHOWN_VALUE_CHARS_MAX]}…"


def _first_difference(parts: Iterable[tuple[str, Any, Any]], path: str) -> tuple[str, Any, Any] | None:
    for step, value, back in parts:
        found = first_changed_part(value, back, path + step)
        if found is not None:
            return found
    return None


def _attribute_difference(
    value: Any, back: Any, names: tuple[str, ...], path: str
) -> tuple[str, Any, Any] | None:
    for name in names:
        one, other = getattr(value, name, MISSING), getattr(back, name, MISSING)
        if type(one) in PLAIN_TYPES and type(one) is type(other) and one == other:  # saves the call
            continue
        found = first_changed_part(one, other, f"{path}.{name}")
        if found is not None:
            return found
    extra = getattr(value, "__pydantic_extra__", None) or {}
    more = getattr(back, "__pydantic_extra__", None) or {}
    names = (*extra, *(more.keys() - extra.keys()))
    parts = ((f".{name}", extra.get(name, MISSING), more.get(name, MISSING)) for name in names)
    return _first_difference(parts, path)


def _same_type(value: Any, back: Any) -> bool:
    """Return whether the types match: True is not 1, and a member of an enum is not its value."""
    if isinstance(value, bool | Enum) or isinstance(back, bool | Enum):
        return type(value) is type(back)
    return isinstance(value, type(back))


@lru_cache(maxsize=1024)
def _attribute_names(kind: Hashable) -> tuple[str, ...] | None:
    """Return the attributes of a model or a dataclass that are compared; None for other classes."""
    fields = getattr(kind, "model_fields", None)
    if isinstance(fields, dict):
        return tuple(fields)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.compare)
    return None
