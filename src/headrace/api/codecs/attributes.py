"""The attributes of a dataclass, there and back: in the fields of an entry, or in an object of JSON.

An attribute that is None is left out. One that is missing is None if its type allows that, else its default:
so a class may grow attributes while old entries are still there. What is there and unknown is passed over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import Any, get_type_hints

from headrace.api.codecs.text_codec import without_none
from headrace.errors import CodecError

Ways = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # the way there, and the way back
WRONG = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


class Within(ValueError):
    """What is wrong deep inside of a value. path: `.lines[2].price`; value: what stands there."""

    def __init__(self, step: str, value: Any, wrong: BaseException) -> None:
        inner = wrong if isinstance(wrong, Within) else None
        self.path: str = step + (inner.path if inner else "")
        self.value: Any = inner.value if inner else value
        self.reason: str = inner.reason if inner else str(wrong)
        super().__init__(f"{self.path}: {self.reason}")


@dataclasses.dataclass(frozen=True)
class Attribute:
    """One attribute. key: under which it is stored; required: it has no default."""

    name: str
    key: Hashable
    ways: Ways
    nullable: bool
    required: bool


class Attributes:
    """Those of a class that are given to its constructor. CodecError where the types cannot be known.

    ways_for(annotation) is how a value of that type is stored, or None if it cannot be.
    """

    def __init__(
        self,
        kind: type[Any],
        key_of: Callable[[str], Hashable],
        ways_for: Callable[[Any], Ways | None],
    ) -> None:
        self.kind = kind
        try:
            hints = get_type_hints(kind, include_extras=True)
        except NameError as unknown:  # annotations are text, and this one names a class inside a function
            raise CodecError(f"the types of {kind.__name__}'s attributes: {unknown}") from unknown
        for name, hint in hints.items():
            if isinstance(hint, dataclasses.InitVar):
                raise CodecError(f"{kind.__name__}.{name} is an InitVar: what it was is not known afterwards")
        self._all = []
        for field in dataclasses.fields(kind):
            if field.init:
                plain, nullable = without_none(hints[field.name])
                ways = ways_for(plain)
                if ways is None:
                    raise CodecError(
                        f"{kind.__name__}.{field.name} is of a type that cannot be stored: "
                        f"{hints[field.name]}. Use a pydantic model, or a codec with encode() and decode()"
                    )
                missing = dataclasses.MISSING
                required = field.default is missing and field.default_factory is missing
                self._all.append(Attribute(field.name, key_of(field.name), ways, nullable, required))

    def there(self, value: Any) -> dict[Any, Any]:
        """What is stored of an instance; Within, also for one of a subclass with more attributes."""
        if type(value) is not self.kind:
            known = {field.name for field in dataclasses.fields(self.kind)}
            more = [field.name for field in dataclasses.fields(value) if field.name not in known]
            if more:
                wrong = f"it is a {type(value).__name__}, whose {', '.join(more)} would be lost"
                raise Within("", value, TypeError(wrong))
        stored = {}
        for one in self._all:
            attribute = getattr(value, one.name)
            if attribute is not None or not one.nullable:
                try:
                    stored[one.key] = one.ways[0](attribute)
                except WRONG as wrong:
                    raise Within(f".{one.name}", attribute, wrong) from wrong
        return stored

    def back(self, stored: Mapping[Any, Any]) -> Any:
        """An instance of it; Within."""
        values: dict[str, Any] = {}
        for one in self._all:
            word = stored.get(one.key)
            if word is not None:
                try:
                    values[one.name] = one.ways[1](word)
                except WRONG as wrong:
                    raise Within(f".{one.name}", word, wrong) from wrong
            elif one.nullable:
                values[one.name] = None
            elif one.required:
                raise Within(f".{one.name}", None, ValueError(f"missing, and {self.kind.__name__} needs it"))
        return self.kind(**values)
