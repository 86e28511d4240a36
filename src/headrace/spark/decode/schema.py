r"""Map the columns of a schema to parts of entries, and build Arrow batches of exactly that schema.

The schema is one of Spark or of Arrow; only one of Spark needs PySpark.

Without a schema a row is

    stream STRING, id STRING, timestamp TIMESTAMP, sequence LONG, fields MAP<STRING, STRING>

or, with the option fieldsType=binary, fields MAP<STRING, BINARY>.

With a schema of the user, each column is read from the field of the same name (case matters). Seven reserved
names, which start with an underscore to avoid conflicts with fields, are parts of the entry:

    _stream STRING    _id STRING    _timestamp TIMESTAMP    _sequence LONG
    _fields MAP<STRING, STRING>, MAP<STRING, BINARY> or MAP<BINARY, BINARY>
    _corrupt_record STRING
    _exact ARRAY<STRUCT<name: BINARY, value: BINARY>>

`_exact` contains the exact fields of an entry that the other columns do not represent byte for byte; else it
is null. In a map of strings, each byte that is not UTF-8 is written as \xNN.

So `.schema("id STRING, price DOUBLE")` reads two fields called id and price, and
`.schema("_id STRING, price DOUBLE")` reads the entry's ID and one field. A missing field is null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.arrow.columns import Column
from headrace.columns import time_formats
from headrace.columns.declarations import type_name
from headrace.columns.nested_from_json import is_nested, unreadable_part
from headrace.columns.specs import ColumnSpec, column_comment, field_spec
from headrace.errors import UsageError
from headrace.spark.decode import type_errors
from headrace.spark.decode.arrow_decoder import ArrowDecoder
from headrace.spark.decode.page_tokenizer import ReplyPageTokenizer
from headrace.spark.sink.arrow_cells import field_cells, map_cells
from headrace.spark.sink.encoder import ArrowCells

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructField, StructType

# The default schemas by the option fieldsType.
DEFAULT_SCHEMAS = {
    kind: f"stream STRING, id STRING, timestamp TIMESTAMP, sequence LONG, fields MAP<STRING, {kind.upper()}>"
    for kind in ("string", "binary")
}
DEFAULT_NAMES = ["stream", "id", "timestamp", "sequence", "fields"]

ColumnBuffers = tuple[int, "bytearray | None", bytearray, bytearray]

MAP_SETTINGS = {
    "map<string,string>": {"utf8_names": True},
    "map<string,binary>": {"utf8_names": True, "utf8_values": False},
    "map<binary,binary>": {"utf8_names": False},
}

# Reserved column: what the decoder calls it, the types it may have.
RESERVED_COLUMNS = {
    "_stream": ("stream", ("string",)),
    "_id": ("id", ("string",)),
    "_timestamp": ("timestamp", ("timestamp", "timestamp_ntz")),
    "_sequence": ("sequence", ("bigint",)),
    "_fields": ("fields", ("map<string,string>", "map<string,binary>", "map<binary,binary>")),
    "_corrupt_record": ("corrupt", ("string",)),
    "_exact": ("exact", ("array<struct<name:binary,value:binary>>",)),
}
RESERVED_KINDS = {role for role, _ in RESERVED_COLUMNS.values()}
NESTED_TYPES = ("array", "map", "struct")
KINDS_NOT_DECODED = ("stream", "exact")  # kinds of columns that are not made by the decoder's columns


class ColumnLayout:
    """The columns of one read; picklable. The driver makes it: a wrong schema fails before any task runs."""

    def __init__(self, schema: StructType, timestamp_format: str) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        is_default = schema.names == DEFAULT_NAMES and schema.simpleString() in (
            "struct<stream:string,id:string,timestamp:timestamp,sequence:bigint,fields:map<string,string>>",
            "struct<stream:string,id:string,timestamp:timestamp,sequence:bigint,fields:map<string,binary>>",
        )
        self.specs: list[ColumnSpec] = []
        for field in schema.fields:
            reserved = f"_{field.name}" if is_default else field.name
            if reserved in RESERVED_COLUMNS:
                self.specs.append(_reserved_spec(reserved, field.dataType.simpleString(), field.nullable))
            else:
                time_format = column_time_format(field, timestamp_format)
                self.specs.append(_field_spec(field.name, field.dataType, field.nullable, time_format))
        _check_distinct(schema.names)
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    @classmethod
    def of_arrow(cls, schema: pa.Schema, timestamp_format: str) -> ColumnLayout:
        """Return the layout of an Arrow schema.

        Raises:
            UsageError: if a type cannot be read, or a name occurs twice.
        """
        layout = cls.__new__(cls)
        layout.specs = [_arrow_spec(field, timestamp_format) for field in schema]
        _check_distinct(schema.names)
        layout.arrow_schema = schema
        return layout

    def new_columns(self) -> list[Column]:
        """Return new columns for a decoder."""
        return [spec.new_column() for spec in self.decoded_specs()]

    def decoded_specs(self) -> list[ColumnSpec]:
        """Return the specs of the columns that a decoder makes, in its order."""
        return [spec for spec in self.specs if spec.kind not in KINDS_NOT_DECODED]

    @property
    def has_exact(self) -> bool:
        """Whether there is a column `_exact`."""
        return any(spec.kind == "exact" for spec in self.specs)

    def new_decoder(self, tokenizer: ReplyPageTokenizer, stream: str, mode: str) -> ArrowDecoder:
        """Return a decoder of replies for these columns."""
        return ArrowDecoder(tokenizer, self.new_columns(), stream, mode, self.has_exact)


class BatchBuilder:
    """Makes record batches of one stream from the buffers of its decoder."""

    def __init__(self, layout: ColumnLayout, stream: str) -> None:
        self._layout = layout
        self._stream = stream
        self._schema = layout.arrow_schema

    def take(self, decoder: ArrowDecoder) -> pa.RecordBatch:
        """Return the decoder's rows as one batch. With `_exact`, their replies must still be buffered."""
        rows, buffers = decoder.take()
        return self.batch(rows, buffers, decoder)

    def batch(
        self, rows: int, buffers: list[ColumnBuffers], decoder: ArrowDecoder | None = None
    ) -> pa.RecordBatch:
        """Return a batch that uses the memory of the buffers. The decoder is needed only for `_exact`."""
        import pyarrow as pa

        rest = iter(buffers)
        pairs = buffers[-2:]  # a map's keys and items come last
        arrays = []
        for spec, field in zip(self._layout.specs, self._schema, strict=True):
            if spec.kind == "stream":
                arrays.append(pa.repeat(pa.scalar(self._stream, field.type), rows))
            elif spec.kind == "exact":
                arrays.append(pa.nulls(rows, field.type))
            elif spec.kind == "nested":
                arrays.append(_nested_array(field.type, rows, next(rest), spec.settings["convert"]))
            elif spec.kind == "fields":
                arrays.append(_map_array(field.type, rows, next(rest), pairs))
            else:
                arrays.append(_array(field.type, rows, next(rest)))
        if decoder is not None and decoder.tracks_rows:
            exact = decoder.take_exact_column_buffers(self._field_columns(arrays))
            for i, spec in enumerate(self._layout.specs):
                if spec.kind == "exact":
                    arrays[i] = _exact_array(self._schema.field(i).type, rows, *exact)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _field_columns(self, arrays: list[pa.Array]) -> list[ArrowCells]:
        """Return the columns that the sink writes as fields: the map of all fields, or else each field's."""
        found = list(zip(self._layout.specs, arrays, strict=True))
        maps = [map_cells(array) for spec, array in found if spec.kind == "fields"]
        if maps:
            return maps[:1]
        return [
            field_cells(spec.name, array, spec.time_format)
            for spec, array in found
            if spec.kind not in RESERVED_KINDS
        ]


def _array(kind: pa.DataType, rows: int, buffers: ColumnBuffers) -> pa.Array:
    import pyarrow as pa

    nulls, validity, offsets, values = buffers
    parts = [pa.py_buffer(validity) if validity is not None else None]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        parts.append(pa.py_buffer(offsets))
    parts.append(pa.py_buffer(values))
    return pa.Array.from_buffers(kind, rows, parts, nulls)


def _map_array(kind: pa.MapType, rows: int, buffers: ColumnBuffers, pairs: list[ColumnBuffers]) -> pa.Array:
    import pyarrow as pa

    nulls, validity, offsets, _ = buffers
    count = len(pairs[0][2]) // 4 - 1
    children = [_array(kind.key_type, count, pairs[0]), _array(kind.item_type, count, pairs[1])]
    entries = pa.Array.from_buffers(
        pa.struct([kind.key_field, kind.item_field]), count, [None], 0, children=children
    )
    parts = [pa.py_buffer(validity) if validity is not None else None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, rows, parts, nulls, children=[entries])


def _exact_array(
    kind: pa.ListType, rows: int, entries: ColumnBuffers, names: ColumnBuffers, values: ColumnBuffers
) -> pa.Array:
    import pyarrow as pa

    nulls, validity, offsets, _ = entries
    count = len(names[2]) // 4 - 1
    children = [_array(pa.binary(), count, names), _array(pa.binary(), count, values)]
    fields = pa.Array.from_buffers(kind.value_type, count, [None], 0, children=children)
    parts = [pa.py_buffer(validity) if validity is not None else None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, rows, parts, nulls, children=[fields])


def _nested_array(
    kind: pa.DataType, rows: int, buffers: ColumnBuffers, read: Callable[[str], Any]
) -> pa.Array:
    """Convert the texts a second time: the decoder only checked them."""
    import pyarrow as pa

    texts = _array(pa.string(), rows, buffers).to_pylist()
    return pa.array([None if text is None else read(text) for text in texts], kind)


def _check_distinct(names: list[str]) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UsageError(f"The schema has the column {', '.join(sorted(twice))} twice: remove one.")


def _reserved_spec(name: str, kind: str, nullable: bool) -> ColumnSpec:
    role, types = RESERVED_COLUMNS[name]
    if kind not in types:
        raise type_errors.wrong_type(name, types, kind)
    if role in ("corrupt", "exact") and not nullable:
        raise UsageError(f"The column {name} must be nullable: it is null for most entries.")
    settings: dict[str, Any] = {"nullable": nullable}
    if role == "fields":
        settings |= MAP_SETTINGS[kind]
    return ColumnSpec(role, "", settings)


def _arrow_spec(field: pa.Field, default_format: str) -> ColumnSpec:
    """Return how a column of an Arrow schema is made."""
    name, kind = field.name, field.type
    if name in RESERVED_COLUMNS:
        return _reserved_spec(name, type_name(kind), field.nullable)
    is_date = type_name(kind) == "date"
    time_format = time_formats.column_time_format(column_comment(field), is_date, default_format)
    spec = field_spec(name, kind, field.nullable, time_format)
    if spec is not None:
        return spec
    part = unreadable_part(kind) if is_nested(kind) else None
    if part is None:
        raise type_errors.not_from_field(name, type_name(kind))
    if is_nested(part):  # a map with such keys
        raise type_errors.not_a_map_key(name, type_name(part.key_type))
    raise type_errors.not_from_json(name, type_name(part))


def _field_spec(name: str, kind: DataType, nullable: bool, time_format: str) -> ColumnSpec:
    if kind.typeName() in NESTED_TYPES:
        from headrace.spark.decode import nested_types

        nested_types.check_nested_type(name, kind)
    arrow_type = _arrow_type(kind)
    spec = None if arrow_type is None else field_spec(name, arrow_type, nullable, time_format)
    if spec is None:
        raise type_errors.not_from_field(name, kind.simpleString())
    return spec


def _arrow_type(kind: DataType) -> pa.DataType | None:
    """Return the Arrow type of a column; None if it has none, or is of a type like VARIANT."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        found = to_arrow_type(kind, timezone="UTC")
    except PySparkException:
        return None
    return None if is_nested(found) and kind.typeName() not in NESTED_TYPES else found


def column_time_format(field: StructField, default: str) -> str:
    """Return the format in the comment of a column, or else the default."""
    comment = (field.metadata or {}).get("comment", "")
    return time_formats.column_time_format(comment, field.dataType.typeName() == "date", default)
