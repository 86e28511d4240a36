"""The attributes of a dataclass, encoded as the fields of an entry or as a JSON object.

An attribute that is None is not stored. A missing one becomes None if its type allows that, else its default:
so attributes can be added to a class while old entries exist. Unknown fields are ignored.

Types are checked before a value is stored, so it comes back as it is. If the class may do more in its
constructor, as in __post_init__, an instance is made from what would be stored, and compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import Any, get_type_hints

from headrace.api.codecs.comparison import describe_difference, first_changed_part
from headrace.api.codecs.text_codec import strip_optional_and_nullable
from headrace.errors import CodecError

EncodeDecodePair = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # (encode, decode)
CONVERSION_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


class InvalidNestedValue(ValueError):
    """An invalid part of a value: its path such as `.lines[2].price`, the part itself, and the reason."""

    def __init__(self, step: str, value: Any, wrong: BaseException) -> None:
        inner = wrong if isinstance(wrong, InvalidNestedValue) else None
        self.path: str = step + (inner.path if inner else "")
        self.value: Any = inner.value if inner else value
        self.reason: str = inner.reason if inner else str(wrong)
        super().__init__(f"{self.path}: {self.reason}")


@dataclasses.dataclass(frozen=True)
class Attribute:
    """One attribute. key: its name in storage; required: it has no default."""

    name: str
    key: Hashable
    converter: EncodeDecodePair
    nullable: bool
    required: bool


class DataclassAttributes:
    """The attributes that a class's constructor takes.

    converter_for(annotation) returns the converter for values of that type, or None. Raises CodecError if a
    type cannot be resolved or stored.
    """

    def __init__(
        self,
        kind: type[Any],
        key_of: Callable[[str], Hashable],
        converter_for: Callable[[Any], EncodeDecodePair | None],
    ) -> None:
        self.kind = kind
        try:
            hints = get_type_hints(kind, include_extras=True)
        except NameError as unknown:  # the annotation is text and names a class inside a function
            raise CodecError(f"the types of {kind.__name__}'s attributes: {unknown}") from unknown
        for name, hint in hints.items():
            if isinstance(hint, dataclasses.InitVar):
                raise CodecError(f"{kind.__name__}.{name} is an InitVar: its value is not kept")
        self.needs_round_trip_check: bool = _has_custom_construction(kind)
        self._all = []
        for field in dataclasses.fields(kind):
            if field.init:
                plain, nullable = strip_optional_and_nullable(hints[field.name])
                converter = converter_for(plain)
                if converter is None:
                    raise CodecError(
                        f"{kind.__name__}.{field.name} has a type that cannot be stored: "
                        f"{hints[field.name]}. Use a pydantic model, or a codec with encode() and decode()"
                    )
                missing = dataclasses.MISSING
                required = field.default is missing and field.default_factory is missing
                self._all.append(Attribute(field.name, key_of(field.name), converter, nullable, required))

    def encode(self, value: Any) -> dict[Any, Any]:
        """Return the encoded attributes of an instance by key, without nullable ones that are None.

        Raises InvalidNestedValue, also for a subclass with more attributes.
        """
        if type(value) is not self.kind:
            known = {field.name for field in dataclasses.fields(self.kind)}
            more = [field.name for field in dataclasses.fields(value) if field.name not in known]
            if more:
                wrong = f"is a {type(value).__name__}, whose {', '.join(more)} would be lost"
                raise InvalidNestedValue("", value, TypeError(wrong))
        stored = {}
        for one in self._all:
            attribute = getattr(value, one.name)
            if attribute is not None or not one.nullable:
                try:
                    stored[one.key] = one.converter[0](attribute)
                except CONVERSION_ERRORS as wrong:
                    raise InvalidNestedValue(f".{one.name}", attribute, wrong) from wrong
        return stored

    def check_round_trip(self, value: Any, stored: Mapping[Any, Any]) -> None:
        """Raise InvalidNestedValue if decoding `stored` gives another value than `value`."""
        changed = first_changed_part(value, self.decode(stored))
        if changed is not None:
            path, one, back = changed
            raise InvalidNestedValue(path, one, ValueError(describe_difference(one, back)))

    def decode(self, stored: Mapping[Any, Any]) -> Any:
        """Return an instance from stored attributes.

        Raises InvalidNestedValue if one is missing or invalid.
        """
        values: dict[str, Any] = {}
        for one in self._all:
            word = stored.get(one.key)
            if word is not None:
                try:
                    values[one.name] = one.converter[1](word)
                except CONVERSION_ERRORS as wrong:
                    raise InvalidNestedValue(f".{one.name}", word, wrong) from wrong
            elif one.nullable:
                values[one.name] = None
            elif one.required:
                raise InvalidNestedValue(
                    f".{one.name}", None, ValueError(f"missing, and {self.kind.__name__} needs it")
                )
        return self.kind(**values)


def _has_custom_construction(kind: type[Any]) -> bool:
    """Return whether an instance depends on more than the attributes that the generated constructor takes."""
    generated = "__dataclass_params__" in kind.__dict__ and kind.__dataclass_params__.init
    taken = all(field.init for field in dataclasses.fields(kind))
    return (
        not (generated and taken) or hasattr(kind, "__post_init__") or hasattr(kind, "__pydantic_validator__")
    )
