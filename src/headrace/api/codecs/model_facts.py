"""Inspect a pydantic model's declaration: how it is stored, and which data would be lost.

Every type within the model is examined: models, dataclasses and typed dicts, in lists, unions and so on.
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from headrace.api.codecs.text_codec import resolve_alias
from headrace.errors import CodecError


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """How a model is dumped and validated so that nothing is lost.

    validates_by_name: validate attributes by name, too, because some alias is only written or only read.
    dumps_by_name: dump attributes by name, because a nested model has such an alias.
    dumps_round_trip: dump with pydantic's round_trip=True, because the model has values of pydantic's Json,
        or a nested model would reject its own computed fields.
    """

    validates_by_name: bool
    dumps_by_name: bool
    dumps_round_trip: bool


def model_facts(kind: Any) -> ModelFacts:
    """Return how to dump and validate a model.

    Raises CodecError if every instance, or a whole attribute, would be lost.
    """
    if not getattr(kind, "__pydantic_complete__", True) and kind.model_rebuild(raise_errors=False) is False:
        raise CodecError(f"{kind.__name__} is not fully defined: define the classes that it names first")
    by_name = dumped_by_name = round_trip = False
    for path, part in _walk_types(kind, kind.__name__, set()):
        nested = path != kind.__name__
        if hasattr(part, "get_secret_value"):
            raise CodecError(
                f"{path} is a {part.__name__}, of which only asterisks would be stored: use str, or a"
                " codec with encode() and decode() that stores the secret as you want it"
            )
        if _is_pydantic_json(part) or (nested and _rejects_computed(part)):
            round_trip = True
        for name, field in _model_fields(part).items():
            if getattr(field, "exclude", None):
                raise CodecError(
                    f"{path}.{name} has exclude=True, so its value would be lost: remove exclude, make it a"
                    " PrivateAttr, which is not stored, or use a codec with encode() and decode()"
                )
            if not _validates_by_dumped_name(part, name, field):
                by_name = True
                dumped_by_name = dumped_by_name or nested
    if by_name and "by_name" not in inspect.signature(kind.model_validate_json).parameters:
        raise CodecError(
            f"{kind.__name__} has an alias that is only written or only read: that needs pydantic 2.11 or"
            " later; or use alias= alone"
        )
    return ModelFacts(by_name, dumped_by_name, round_trip)


def stored_attribute_name(name: str, field: Any) -> str:
    """Return the name under which an attribute is stored."""
    return getattr(field, "serialization_alias", None) or getattr(field, "alias", None) or name


def string_attribute_names(kind: Any) -> set[str]:
    """Return the stored names of attributes whose JSON value is always a string or null."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about defaults that JSON cannot represent
            schema = kind.model_json_schema(mode="serialization", by_alias=True)
    except Exception:  # a type without a schema: pydantic raises errors of several kinds
        return set()
    definitions = schema.get("$defs", {})
    properties = _resolve(schema, definitions).get("properties", {})
    return {name for name, one in properties.items() if _is_string(one, definitions)}


def _resolve(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "")
    return definitions.get(reference.rpartition("/")[2], {}) if reference else schema


def _is_string(schema: Any, definitions: dict[str, Any], depth: int = 8) -> bool:
    schema = _resolve(schema, definitions)
    if "anyOf" in schema and depth:
        kinds = [one for one in schema["anyOf"] if one.get("type") != "null"]
        return bool(kinds) and all(_is_string(one, definitions, depth - 1) for one in kinds)
    return bool(schema.get("type") == "string")


def _model_fields(kind: Any) -> dict[str, Any]:
    fields = getattr(kind, "model_fields", None) if isinstance(kind, type) else None
    return fields if isinstance(fields, dict) else {}


def _is_pydantic_json(part: Any) -> bool:
    """Return whether it is pydantic's Json, which is read from a text."""
    return (part if isinstance(part, type) else type(part)).__name__ == "Json"


def _rejects_computed(kind: Any) -> bool:
    """Return whether a model has computed fields, and would not ignore them when it is read."""
    computed = getattr(kind, "model_computed_fields", None) if isinstance(kind, type) else None
    return bool(computed) and kind.model_config.get("extra", "ignore") != "ignore"


def _validates_by_dumped_name(kind: Any, name: str, field: Any) -> bool:
    """Return whether a model validates an attribute by the name under which it is dumped."""
    config = kind.model_config
    alias = getattr(field, "validation_alias", None)
    read: set[Any] = set()
    if alias is None or config.get("populate_by_name") or config.get("validate_by_name"):
        read.add(name)
    if alias is not None and config.get("validate_by_alias", True) is not False:
        choices = [getattr(one, "path", [one]) for one in getattr(alias, "choices", [alias])]
        read |= {choice[0] for choice in choices if len(choice) == 1}
    return stored_attribute_name(name, field) in read


def _walk_types(annotation: Any, path: str, seen: set[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each type and each mark of Annotated in an annotation, with the attribute that has it."""
    annotation = resolve_alias(annotation)
    yield path, annotation
    if get_origin(annotation) is Annotated:
        yield from ((path, mark) for mark in annotation.__metadata__)
    for one in get_args(annotation):
        yield from _walk_types(one, path, seen)
    if not isinstance(annotation, type) or annotation in seen:
        return
    seen.add(annotation)
    for name, field in _model_fields(annotation).items():
        yield from ((f"{path}.{name}", mark) for mark in field.metadata)
        yield from _walk_types(field.annotation, f"{path}.{name}", seen)
    if dataclasses.is_dataclass(annotation) or hasattr(annotation, "__total__"):
        try:
            hints = get_type_hints(annotation, include_extras=True)
        except NameError:  # a class inside a function: values are compared when they are added
            return
        for name, hint in hints.items():
            yield from _walk_types(hint, f"{path}.{name}", seen)
