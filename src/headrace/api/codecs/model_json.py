"""Convert a pydantic model, or an object of a class with the same methods, to a JSON value and back.

What a model declares is examined once (model_facts.py). The rest depends on the value: validators,
serializers, unions, attributes that were assigned without validation. So each value is read back before it is
stored, and rejected if it would come back changed.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.api.codecs.attributes import CONVERSION_ERRORS
from headrace.api.codecs.comparison import describe_difference, first_changed_part, short_repr
from headrace.api.codecs.model_facts import ModelFacts, model_facts
from headrace.errors import CodecError

compact_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # without spaces
LOSSY_TYPE_ADVICE = "use a type that keeps it, or a codec with encode() and decode()"


class ModelJson:
    """Converts instances of a class to JSON values and back.

    Raises CodecError if an attribute would be lost.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        # a class that only has the two methods may compare its instances by identity, or not at all
        self.is_pydantic = hasattr(kind, "model_fields") and hasattr(kind, "model_validate_json")
        self.facts = model_facts(kind) if self.is_pydantic else ModelFacts(False, False, False)
        self._dump: dict[str, Any] = (
            {"mode": "json", "by_alias": not self.facts.dumps_by_name}
            if hasattr(kind, "model_fields")
            else {}
        )
        if self.is_pydantic:
            self._dump["warnings"] = False  # about values of a wrong type, which are compared
        self._read: dict[str, Any] = (
            {"by_alias": True, "by_name": True} if self.facts.validates_by_name else {}
        )

    def dump(self, value: Any, **options: Any) -> Any:
        """Return a JSON value. Raises CodecError if `value` has another type, or JSON cannot represent it."""
        if not isinstance(value, self.kind):
            raise CodecError(f"this stream is of {self.kind.__name__}, and cannot take {value!r}")
        if self.facts.dumps_round_trip:
            options.setdefault("round_trip", True)
        try:
            return value.model_dump(**self._dump, **options)
        except ValueError as wrong:
            raise CodecError(f"{value!r} cannot be stored as text: {wrong}") from wrong

    def read(self, found: Any) -> Any:
        """Return an instance from its JSON value. Raises CodecError with the name of an invalid attribute."""
        return self.read_json(compact_json(found))

    def read_json(self, document: str) -> Any:
        """Return an instance from JSON. Raises CodecError with the name of an invalid attribute."""
        try:
            if self.is_pydantic:  # its strict mode accepts the text of a date
                return self.kind.model_validate_json(document, **self._read)
            return self.kind.model_validate(json.loads(document))
        except CONVERSION_ERRORS as wrong:  # of pydantic, or of a validator
            raise self._invalid_value_error(wrong) from wrong

    def _invalid_value_error(self, wrong: BaseException) -> CodecError:
        return CodecError(f"{self.kind.__name__}: {describe_invalid(wrong)}")

    def check_round_trip(self, value: Any, back: Any) -> None:
        """Raise CodecError if `back`, decoded from what would be stored, differs from the value."""
        changed = first_changed_part(value, back) if self.is_pydantic else None
        if changed is not None:
            path, one, became = changed
            where = f"{self.kind.__name__}{path}: cannot store {short_repr(one)}"
            raise CodecError(f"{where}: {describe_difference(one, became)}; {LOSSY_TYPE_ADVICE}")

    def dump_round_trip_checked(self, value: Any) -> Any:
        """Return the JSON form of a value. For a pydantic model, decode it again and compare.

        Raises:
            CodecError: if it cannot be encoded, or is not decoded from its JSON as the same value.
        """
        dumped = self.dump(value)
        if self.is_pydantic:
            try:
                back = self.read(dumped)
            except CodecError as wrong:
                raise unreadable_value_error(value, wrong) from wrong
            self.check_round_trip(value, back)
        return dumped


def unreadable_value_error(value: Any, wrong: Exception) -> CodecError:
    """Return the error for a value that can be encoded, but not decoded."""
    return CodecError(f"cannot store {short_repr(value)}, because it could not be read again: {wrong}")


def describe_invalid(wrong: BaseException) -> str:
    """Return one line about an error: for pydantic its first invalid attribute, otherwise its text."""
    errors = getattr(wrong, "errors", None)
    if not callable(errors):
        return " ".join(str(wrong).split())
    found = errors()
    path = ".".join(str(step) for step in found[0]["loc"])
    rest = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    message = found[0]["msg"]
    if found[0]["type"] != "missing":
        message += f", not {short_repr(found[0]['input'])}"
    return f"field '{path}': {message}{rest}" if path else f"{message}{rest}"
