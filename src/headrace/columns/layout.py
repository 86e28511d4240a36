r"""Map the columns of an Arrow schema to parts of entries, without Spark.

A column is read from the field of its name, as specs.py says. Names that begin with an underscore, and are
not those of fields, are parts of the entry:

    _stream string    _id string    _timestamp timestamp[us]    _sequence int64    _corrupt_record string
    _fields map<string, string>, map<string, binary> or map<binary, binary>

These are the names and types of the Spark source (spark/decode/schema).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.arrow import column_types
from headrace.arrow.columns import Column
from headrace.columns import time_formats
from headrace.columns.specs import ColumnSpec, column_comment, field_spec
from headrace.errors import UsageError

DEFAULT_SCHEMA = pa.schema([("_id", pa.string()), ("_fields", pa.map_(pa.string(), pa.string()))])
DEFAULT_TIME_FORMAT = "auto"  # of a column of times without a comment
ENTRY_ROLES = {
    "_stream": ("stream", "string"),
    "_id": ("id", "string"),
    "_timestamp": ("timestamp", "timestamp[us]"),
    "_sequence": ("sequence", "int64"),
    "_fields": ("fields", "map<string, string>, map<string, binary> or map<binary, binary>"),
    "_corrupt_record": ("corrupt", "string"),
}
RESERVED_NAMES = {*ENTRY_ROLES, "_exact"}  # of columns that are not those of fields
# The columns that a table in SQL has for every entry, before those of fields.
ENTRY_COLUMNS = pa.schema(
    [
        ("_stream", pa.string()),
        ("_id", pa.string()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_sequence", pa.int64()),
    ]
)
MAP_SETTINGS = {
    (pa.string(), pa.string()): {"utf8_names": True},
    (pa.string(), pa.binary()): {"utf8_names": True, "utf8_values": False},
    (pa.binary(), pa.binary()): {"utf8_names": False},
}
FIELD_TYPES_TEXT = (
    "string, binary, bool, int8 to int64, float32, float64, date32, decimal128, timestamp[us], or (of JSON) "
    "a list, map or struct of these"
)


class ArrowLayout:
    """The columns of an Arrow schema, and how each of them is read from entries.

    Attributes:
        schema: the schema of the batches.
        specs: how each column is made.
        decoded_specs: the specs of the columns that a decoder makes: all columns but the stream's name.
        decoded_fields: the fields of the schema for the same columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Determine how each column is read.

        Raises:
            UsageError: if this is not a schema, it has no columns or one twice, or a type cannot be read.
        """
        if not isinstance(schema, pa.Schema):
            raise UsageError(f"schema={schema!r:.60}: must be a pyarrow.Schema, or None")
        if not schema.names:
            raise UsageError("the schema has no columns")
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        if twice:
            raise UsageError(f"the schema has the column {', '.join(twice)} twice: remove one")
        self.schema = schema
        self.specs = [column_spec(field, DEFAULT_TIME_FORMAT) for field in schema]
        columns = zip(self.specs, schema, strict=True)
        decoded = [(spec, field) for spec, field in columns if spec.kind != "stream"]
        self.decoded_specs = [spec for spec, _ in decoded]
        self.decoded_fields = [field for _, field in decoded]

    def new_columns(self) -> list[Column]:
        """Return new columns for a decoder."""
        return [spec.new_column() for spec in self.decoded_specs]

    @property
    def server_can_encode(self) -> bool:
        """Whether XARROW can encode the columns, perhaps some of them as texts that are converted later.

        False if a text that cannot be converted must be an error, or must put the whole entry into the column
        `_corrupt_record`; or if there are too many columns.
        """
        converted = [spec for spec in self.specs if "convert" in spec.settings]
        strict = any(spec.kind == "corrupt" for spec in self.specs) or not all(
            spec.settings["nullable"] for spec in converted
        )
        return len(self.specs) <= column_types.COLUMNS_MAX and not (converted and strict)


def column_spec(field: pa.Field, default_format: str) -> ColumnSpec:
    """Return how a column is made. default_format: the format of times if the comment sets none.

    Raises:
        UsageError: if its type cannot be read.
    """
    if field.name in ENTRY_ROLES:
        return _entry_spec(field)
    if field.name == "_exact":
        raise UsageError("the column _exact is only for Spark; read _fields as map<binary, binary>")
    is_date = bool(pa.types.is_date(field.type))
    time_format = time_formats.column_time_format(column_comment(field), is_date, default_format)
    spec = field_spec(field.name, field.type, field.nullable, time_format)
    if spec is None:
        raise UsageError(
            f"the column {field.name} is {field.type}: a field can be read as {FIELD_TYPES_TEXT}"
        )
    return spec


def _entry_spec(field: pa.Field) -> ColumnSpec:
    role, expected = ENTRY_ROLES[field.name]
    settings: dict[str, Any] = {"nullable": field.nullable}
    kind = field.type
    if role == "fields":
        map_settings = MAP_SETTINGS.get((kind.key_type, kind.item_type)) if pa.types.is_map(kind) else None
        is_valid = map_settings is not None
        settings |= map_settings or {}
    elif role == "timestamp":
        is_valid = pa.types.is_timestamp(kind) and kind.unit == "us"
    else:
        is_valid = kind == (pa.int64() if role == "sequence" else pa.string())
    if not is_valid:
        raise UsageError(f"the column {field.name} must be {expected}, not {kind}")
    if role == "corrupt" and not field.nullable:
        raise UsageError("the column _corrupt_record must be nullable: it is null for most entries")
    return ColumnSpec(role, "", settings)
