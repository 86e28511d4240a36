"""Read the rows of archived files: which files and row groups, which IDs, the exact fields, typed columns."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.archive.files import EXACT_COLUMN, TIME_ZONE_DAYS_MAX, ArchivedFile, split_ids
from headrace.columns.layout import ENTRY_ROLES
from headrace.columns.specs import ColumnSpec
from headrace.errors import HeadraceError
from headrace.positions.entry_ids import parse_id

BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
DAY_MS = 24 * 3600 * 1000
EPOCH = datetime.date(1970, 1, 1)
KINDS_WITHOUT_FIELD = {
    "exact",
    *(role for role, _ in ENTRY_ROLES.values()),
}  # kinds of columns that read no one field
ARCHIVE_COLUMNS = frozenset({"stream", "date", "id", "timestamp", "sequence"})  # not of entry fields
BINARY_MAP_TYPE = pa.map_(pa.binary(), pa.binary())


@dataclass(frozen=True)
class FileRowGroups:
    """Some row groups of a file."""

    file: ArchivedFile
    group_indexes: tuple[int, ...]


def may_contain(file: ArchivedFile, after: str, upto: str) -> bool:
    """Return whether a file can contain an entry after one ID and up to another, by its times or its date."""
    if parse_id(after) >= parse_id(upto):
        return False
    if file.first_ms is not None and file.last_ms is not None:
        return parse_id(after)[0] <= file.last_ms and file.first_ms <= parse_id(upto)[0]
    if file.date is None:
        return True
    days = (file.date - EPOCH).days
    first, last = (parse_id(each)[0] // DAY_MS for each in (after, upto))
    return first - TIME_ZONE_DAYS_MAX <= days <= last + TIME_ZONE_DAYS_MAX


def has_fields_map(schema: pa.Schema) -> bool:
    """Return whether a file stores the fields as one map."""
    return "fields" in schema.names and pa.types.is_map(schema.field("fields").type)


def exact_as_map(exact: pa.ListArray) -> pa.MapArray:
    """Convert the column `_exact` to maps, in which a name may occur twice; nulls remain nulls."""
    names, values = exact.values.flatten()
    offsets = pc.add(exact.offsets, 0)  # a copy: with nulls, the offsets must not be a slice
    missing = exact.is_null() if exact.null_count else None
    return pa.MapArray.from_arrays(offsets, names, values, mask=missing)


def exact_fields(rows: pa.RecordBatch) -> pa.MapArray:
    """Return the fields of each row as bytes: `_exact` where it is not null, otherwise `fields`, a map."""
    fields = rows.column("fields").cast(BINARY_MAP_TYPE)
    if EXACT_COLUMN not in rows.schema.names or rows.column(EXACT_COLUMN).null_count == rows.num_rows:
        return fields
    is_exact = rows.column(EXACT_COLUMN).is_valid()
    both = pa.concat_arrays([fields, exact_as_map(rows.column(EXACT_COLUMN))])
    order = pa.array(range(rows.num_rows), pa.int64())
    return both.take(pc.if_else(is_exact, pc.add(order, rows.num_rows), order))


def rows_per_batch(file: pq.ParquetFile, piece: FileRowGroups) -> int:
    """Return how many rows of a file to read at once, so that large rows do not fill the memory."""
    groups = [file.metadata.row_group(group) for group in piece.group_indexes]
    rows: int = sum(group.num_rows for group in groups)
    size: int = sum(group.total_byte_size for group in groups)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(size, 1)))


def filter_id_range(rows: pa.RecordBatch, after: str, upto: str) -> pa.RecordBatch:
    """Return the rows with IDs after `after`, up to and including `upto`."""
    ms, seq = split_ids(rows.column("id"))
    low, high = ([pa.scalar(number, pa.uint64()) for number in parse_id(each)] for each in (after, upto))
    return rows.filter(
        pc.and_(
            pc.or_(pc.greater(ms, low[0]), pc.and_(pc.equal(ms, low[0]), pc.greater(seq, low[1]))),
            pc.or_(pc.less(ms, high[0]), pc.and_(pc.equal(ms, high[0]), pc.less_equal(seq, high[1]))),
        )
    )


def sorted_by_id(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows in the order of their IDs: Spark and other programs do not always write them so."""
    ms, seq = split_ids(rows.column("id"))
    order = pc.sort_indices(pa.table({"ms": ms, "seq": seq}), [("ms", "ascending"), ("seq", "ascending")])
    return rows.take(order)


def typed_columns(schema: pa.Schema) -> list[pa.Field]:
    """Return the columns that store fields, in an archive with a column for each field."""
    return [each for each in schema if each.name not in ARCHIVE_COLUMNS and each.name != EXACT_COLUMN]


def column_of_field(spec: ColumnSpec) -> str | None:
    """Return the name of the archive's column from which `spec` is read; None if there is none.

    A field with the name of one of the archive's own columns has no column: its entries are in `_exact`.
    """
    return None if spec.kind in KINDS_WITHOUT_FIELD or spec.name in ARCHIVE_COLUMNS else spec.name


def columns_to_read(schema: pa.Schema, specs: Sequence[ColumnSpec]) -> list[str]:
    """Return the columns of a file to read for these specs. A column that the file lacks is left out."""
    needed = ["fields"] if has_fields_map(schema) else map(column_of_field, specs)
    return ["id", *(name for name in [*needed, EXACT_COLUMN] if name is not None and name in schema.names)]


def cast_rows(
    rows: pa.RecordBatch, specs: Sequence[ColumnSpec], schema: pa.Schema, stream: str, path: str
) -> pa.RecordBatch:
    """Cast the columns of rows of one stream to the types of a schema, whose columns `specs` describes.

    A field without a column is null. Raises HeadraceError for a value that does not fit its type.
    """
    arrays = []
    for spec, field in zip(specs, schema, strict=True):
        try:
            arrays.append(_cast_column(rows, spec, field.type, stream))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise HeadraceError(f"{path}: the column {field.name} is not {field.type}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast_column(rows: pa.RecordBatch, spec: ColumnSpec, kind: pa.DataType, stream: str) -> pa.Array:
    if spec.kind == "stream":
        return pa.repeat(pa.scalar(stream, kind), len(rows))
    if spec.kind == "id":
        return rows.column("id").cast(kind)
    if spec.kind == "timestamp":
        micros = pc.multiply_checked(split_ids(rows.column("id"))[0].cast(pa.int64()), 1000)
        return micros.cast(pa.timestamp("us")).cast(kind)
    if spec.kind == "sequence":
        return split_ids(rows.column("id"))[1].cast(kind)
    name = column_of_field(spec)
    return rows.column(name).cast(kind) if name in rows.schema.names else pa.nulls(len(rows), kind)
