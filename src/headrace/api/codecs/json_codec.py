"""Types of attributes that are stored as JSON, and what their values look like there.

list set frozenset, tuple           an array            dataclass     an object of its attributes
dict, its keys plain text           an object           model         an object, as it dumps itself
str int float bool, Any             as JSON has it      None          null
datetime Decimal UUID Enum …        its plain text (text_codec.py), as a string

Not there: bytes, which are no text, and several types for one value, as nothing would tell which it was.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args, get_origin

from headrace.api.codecs.attributes import WRONG, Attributes, Ways, Within
from headrace.api.codecs.text_codec import one_of, without_none, words_for

ARRAYS = (list, set, frozenset)
PLAIN = (str, int, bool, list, dict)


def dumped(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Shapes:
    """The ways of types into JSON and back. The classes met are noted: they may hold each other."""

    def __init__(self) -> None:
        self._classes: dict[type, Attributes] = {}

    def json_field(self, annotation: Any) -> Ways | None:
        """How values of that type become the text of a field, or None if JSON cannot say them."""
        ways = self.of(annotation)
        if ways is None:
            return None
        there, back = ways
        return (lambda value: dumped(there(value)), lambda word: back(json.loads(word)))

    def of(self, annotation: Any) -> Ways | None:
        """How values of that type become what JSON has, or None."""
        plain, nullable = without_none(annotation)
        if plain in (Any, None, type(None)):
            return (same, same)
        ways = self._of_plain(plain)
        return or_none(ways) if nullable and ways is not None else ways

    def _of_plain(self, kind: Any) -> Ways | None:
        origin, inner = get_origin(kind), get_args(kind)
        if kind in PLAIN:
            return (exactly(kind), exactly(kind))
        if kind is float:
            return (number, number)
        if origin is Literal:
            return (one_of(inner), one_of(inner))
        if origin in ARRAYS:
            item = self.of(inner[0])
            return item and array(origin, item)
        if origin is tuple and len(inner) == 2 and inner[1] is ...:
            item = self.of(inner[0])
            return item and array(tuple, item)
        if origin is tuple:
            items = [self.of(each) for each in inner]
            return None if None in items else row(items)  # type: ignore[arg-type]
        if origin is dict:
            names, value = words_for(inner[0]), self.of(inner[1])
            return table(names, value) if names and value and inner[0] is not bytes else None
        if dataclasses.is_dataclass(kind):
            return self._of_class(kind)  # type: ignore[arg-type]
        if hasattr(kind, "model_validate") and hasattr(kind, "model_dump"):
            return of_model(kind)
        words = words_for(kind)
        return None if words is None or kind is bytes else text(*words)

    def _of_class(self, kind: type[Any]) -> Ways:
        if kind not in self._classes:
            self._classes[kind] = None  # type: ignore[assignment]
            self._classes[kind] = Attributes(kind, str, self.of)
        checked = exactly(kind)
        is_object = exactly(dict)
        return (
            lambda value: self._classes[kind].there(checked(value)),
            lambda stored: self._classes[kind].back(is_object(stored)),
        )


def same(value: Any) -> Any:
    """As it is."""
    return value


def exactly(kind: type[Any]) -> Callable[[Any], Any]:
    """As it is; TypeError for what is of another type, and would come back as another."""

    def checked(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"it is no {kind.__name__}")
        return value

    return checked


def number(value: Any) -> float:
    """A float; TypeError for what is no number."""
    if not isinstance(value, int | float):
        raise TypeError("it is no float")
    return float(value)


def or_none(ways: Ways) -> Ways:
    """The same, and None stays None."""
    there, back = ways
    return (
        lambda value: None if value is None else there(value),
        lambda value: None if value is None else back(value),
    )


def text(write: Callable[[Any], Any], read: Callable[[bytes], Any]) -> Ways:
    """What is plain text elsewhere is a string here."""
    is_text = exactly(str)
    return (write, lambda stored: read(is_text(stored).encode()))


def mapped(way: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """All of them by that way; Within says which one is wrong."""
    found = []
    for n, value in enumerate(values):
        try:
            found.append(way(value))
        except WRONG as wrong:
            raise Within(f"[{n}]", value, wrong) from wrong
    return found


def array(kind: type[Any], item: Ways) -> Ways:
    """Items of one type; those of a set in an order of their own, so that equal sets are stored as equals."""
    checked, is_array = exactly(kind), exactly(list)
    ordered = kind in (set, frozenset)

    def there(value: Any) -> list[Any]:
        found = mapped(item[0], checked(value))
        return sorted(found, key=dumped) if ordered else found

    return (there, lambda stored: kind(mapped(item[1], is_array(stored))))


def row(items: list[Ways]) -> Ways:
    """A tuple of so many items, each of its own type."""
    is_tuple, is_array = exactly(tuple), exactly(list)

    def walk(values: Any, side: int) -> list[Any]:
        if len(values) != len(items):
            raise ValueError(f"it has {len(values)} items, not {len(items)}")
        ways = iter(items)
        return mapped(lambda value: next(ways)[side](value), values)

    return (lambda value: walk(is_tuple(value), 0), lambda stored: tuple(walk(is_array(stored), 1)))


def table(names: tuple[Callable[[Any], Any], Callable[[bytes], Any]], value: Ways) -> Ways:
    """A dict, whose keys are plain text."""
    is_dict = exactly(dict)

    def walk(entries: Any, key: Callable[[Any], Any], way: Callable[[Any], Any]) -> dict[Any, Any]:
        found = {}
        for name, one in is_dict(entries).items():
            try:
                found[key(name)] = way(one)
            except WRONG as wrong:
                raise Within(f"[{name!r}]", one, wrong) from wrong
        return found

    return (
        lambda given: walk(given, lambda name: str(names[0](name)), value[0]),
        lambda stored: walk(stored, lambda name: names[1](name.encode()), value[1]),
    )


def of_model(kind: Any) -> Ways:
    """A pydantic model, or what has its methods."""
    checked = exactly(kind)
    how = {"mode": "json", "by_alias": True} if hasattr(kind, "model_fields") else {}
    return (lambda value: checked(value).model_dump(**how), kind.model_validate)
