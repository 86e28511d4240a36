"""Determine which columns of a DataFrame are the stream, the ID, and the fields of an entry.

Every column becomes a field of the entry; nulls are omitted. Reserved columns have the source's names:

    _stream STRING                 the stream to add to, instead of the option `stream`
    _id     STRING                 the entry's ID, instead of a new one
    _fields MAP<STRING, STRING>    its pairs become fields (keys and values can also be BINARY)

A frame with the source's default columns, `stream, id, timestamp, sequence, fields` or some of these
including `fields`, is copied: the pairs become fields again, the stream is the original one unless the option
names another, and the ID is a new one unless keepIds is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import UsageError
from headrace.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SOURCE_COLUMN_NAMES = {"stream", "id", "timestamp", "sequence", "fields"}


@dataclass(frozen=True)
class ColumnRoles:
    """The names of the columns of a schema by role; None: there is no such column."""

    stream: str | None
    entry_id: str | None
    fields_map: str | None
    fields: tuple[str, ...]


def column_roles(schema: pa.Schema, options: Options) -> ColumnRoles:
    """Determine the roles of the columns.

    Raises:
        UsageError: for a reserved column of a wrong type, or if no stream or a required ID is given.
    """
    names = schema.names
    if (
        "fields" in names
        and set(names) <= SOURCE_COLUMN_NAMES
        and _is_fields_map(schema.field("fields").type)
    ):
        has_stream = "stream" in names and options.stream is None
        found = ColumnRoles(
            "stream" if has_stream else None,
            "id" if "id" in names and options.keep_ids else None,
            "fields",
            (),
        )
    else:
        stream, entry_id, pairs = (name if name in names else None for name in ("_stream", "_id", "_fields"))
        rest = tuple(name for name in names if name not in (stream, entry_id, pairs))
        found = ColumnRoles(stream, entry_id, pairs, rest)
    for name in (found.stream, found.entry_id):
        if name is not None and not _is_text(schema.field(name).type):
            raise UsageError(f"The column {name} must be STRING.")
    if found.fields_map is not None and not _is_fields_map(schema.field(found.fields_map).type):
        raise UsageError(f"The column {found.fields_map} must be MAP<STRING,STRING> or MAP<BINARY,BINARY>.")
    if options.stream is None and found.stream is None:
        raise UsageError("No stream to write to: set the option stream, or give the rows a column _stream.")
    if options.keep_ids and found.entry_id is None:
        raise UsageError("keepIds is true, but the rows have no ID: give them a column _id.")
    return found


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_fields_map(kind: pa.DataType) -> bool:
    if not pa.types.is_map(kind):
        return False
    kinds = (kind.key_type, kind.item_type)
    return all(_is_text(k) or pa.types.is_binary(k) or pa.types.is_large_binary(k) for k in kinds)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark passes the rows.

    Raises:
        UsageError: for a column whose type Spark cannot pass to Python.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType as Columns

    for field in schema.fields:
        try:
            to_arrow_schema(Columns([field]), timezone="UTC")
        except PySparkException:
            kind = field.dataType.simpleString().upper()
            raise UsageError(
                f"The column {field.name} is {kind}, which Spark cannot pass to the sink: write it as text, "
                f"with CAST({field.name} AS STRING)."
            ) from None
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return found
