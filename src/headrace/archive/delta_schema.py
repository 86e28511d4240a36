"""Convert schemas between Arrow and Delta, whose JSON has the types of Spark.

    bigint          "long"                                                      int64
    timestamp       "timestamp"                                                 timestamp[us, UTC]
    timestamp_ntz   "timestamp_ntz"                                             timestamp[us]
    array<int>      {"type": "array", "elementType": "integer", …}              list<element: int32>
    COMMENT 'x'     the metadata {"comment": "x"} of a field                    the same

Arrow's types are those with which Spark reads such columns, so all writers give files the same types.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from headrace.errors import UsageError

SIMPLE_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
    "void": pa.null(),
}
TYPE_NAMES = {kind: name for name, kind in SIMPLE_TYPES.items()}
DECIMAL_TYPE_PATTERN = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def arrow_schema(delta_json: str) -> pa.Schema:
    """Return the schema of a Delta table, given as JSON. Raises UsageError for a type that Arrow lacks."""
    return pa.schema([_arrow_field(each) for each in json.loads(delta_json)["fields"]])


def delta_json(schema: pa.Schema) -> str:
    """Return a schema as the JSON of Delta. Raises UsageError for a type that Delta lacks."""
    return json.dumps({"type": "struct", "fields": [_delta_field(each) for each in schema]})


def _arrow_field(found: dict[str, Any]) -> pa.Field:
    metadata = {name: text for name, text in (found.get("metadata") or {}).items() if isinstance(text, str)}
    kind = _arrow_type(found["type"])
    return pa.field(found["name"], kind, found.get("nullable", True), metadata or None)


def _arrow_type(found: str | dict[str, Any]) -> pa.DataType:
    if isinstance(found, str):
        if decimal := DECIMAL_TYPE_PATTERN.fullmatch(found):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if found not in SIMPLE_TYPES:
            raise UsageError(f"the archive has a column of the type {found}, which headrace cannot read")
        return SIMPLE_TYPES[found]
    if found["type"] == "struct":
        return pa.struct([_arrow_field(each) for each in found["fields"]])
    if found["type"] == "array":
        return pa.list_(pa.field("element", _arrow_type(found["elementType"]), found["containsNull"]))
    key = pa.field("key", _arrow_type(found["keyType"]), nullable=False)
    return pa.map_(key, pa.field("value", _arrow_type(found["valueType"]), found["valueContainsNull"]))


def _delta_field(field: pa.Field) -> dict[str, Any]:
    metadata = {name.decode(): text.decode() for name, text in (field.metadata or {}).items()}
    kind = _delta_type(field.type)
    return {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": metadata}


def _delta_type(kind: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_delta_field(field) for field in kind]}
    if pa.types.is_list(kind):
        element = kind.value_field
        return {
            "type": "array", "elementType": _delta_type(element.type), "containsNull": element.nullable,
        }  # fmt: skip
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _delta_type(kind.key_type),
            "valueType": _delta_type(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    if kind not in TYPE_NAMES:
        raise UsageError(f"a Delta table cannot have a column of the type {kind}")
    return TYPE_NAMES[kind]
