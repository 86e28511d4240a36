"""Read archived entries of one stream into batches of an Arrow schema, without Spark.

    file of maps         each entry is encoded from its fields, as an entry of the stream is
    file of columns      columns are cast to the types of the schema, or an error is raised
    `_exact` not null    the entry is encoded from these fields: the columns do not represent it

The time and the sequence are taken from the ID, because timestamps in Parquet may have a smaller range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headrace.archive.files import EXACT_COLUMN, ArchivedFile, split_ids
from headrace.archive.rows import (
    FileRowGroups,
    cast_rows,
    columns_to_read,
    exact_as_map,
    exact_fields,
    filter_id_range,
    has_fields_map,
    may_contain,
    rows_per_batch,
    sorted_by_id,
)
from headrace.columns.batch_assembler import BatchAssembler, encode_entries
from headrace.columns.layout import ArrowLayout
from headrace.errors import HeadraceError

DERIVED_ROLES = ("stream", "id", "timestamp", "sequence")  # of columns that the ID and the name give

BatchAndMisfits = tuple[pa.RecordBatch, list[int]]


class TypedArchiveReader:
    """Reads entries of one archived stream as the columns of a schema."""

    def __init__(self, stream: str, schema: pa.Schema) -> None:
        """Make a reader of one stream. Raises UsageError if a column has a type that cannot be read."""
        self._stream = stream
        self._layout = ArrowLayout(schema)
        self._assembler = BatchAssembler(self._layout, stream.encode("utf-8", "surrogateescape"), False)
        self._needs_fields = any(spec.kind not in DERIVED_ROLES for spec in self._layout.specs)

    def batches(self, files: Iterable[ArchivedFile], after: str, upto: str) -> Iterator[BatchAndMisfits]:
        """Yield the entries after one ID, up to and including another, file by file.

        Each batch comes with a list of counts: for each of `decoded_fields`, how many values did not fit. The
        list is empty if all values fit.

        Raises:
            MalformedEntry: if the value of a column that is not nullable is missing, or does not fit.
            HeadraceError: if a column has another type, or a file cannot be read.
        """
        for file in files:
            if file.stream == self._stream and may_contain(file, after, upto):
                yield from self._read_file(file, after, upto)

    @property
    def decoded_fields(self) -> list[pa.Field]:
        """The columns whose misfits are counted."""
        return self._layout.decoded_fields

    def _read_file(self, file: ArchivedFile, after: str, upto: str) -> Iterator[BatchAndMisfits]:
        with file.open() as parquet:
            schema = parquet.schema_arrow
            is_map = has_fields_map(schema)
            groups = list(range(parquet.num_row_groups))
            columns = columns_to_read(schema, self._layout.specs) if self._needs_fields else ["id"]
            size = rows_per_batch(parquet, FileRowGroups(file, tuple(groups)))
            for batch in parquet.iter_batches(size, groups, columns):
                rows = filter_id_range(batch, after, upto)
                if rows.num_rows == 0:
                    continue
                if is_map and self._needs_fields:
                    rows = sorted_by_id(rows)
                    yield from self._encode(rows.column("id"), exact_fields(rows))
                elif EXACT_COLUMN in rows.schema.names:
                    yield from self._split_exact(rows, file.path)
                else:
                    yield self._cast(rows, file.path)

    def _split_exact(self, rows: pa.RecordBatch, path: str) -> Iterator[BatchAndMisfits]:
        """Yield the rows that the typed columns represent, then those that `_exact` represents."""
        is_exact = rows.column(EXACT_COLUMN).is_valid()
        plain, exact = rows.filter(pc.invert(is_exact)), sorted_by_id(rows.filter(is_exact))
        if plain.num_rows:
            yield self._cast(plain, path)
        if exact.num_rows:
            yield from self._encode(exact.column("id"), exact_as_map(exact.column(EXACT_COLUMN)))

    def _encode(self, ids: pa.Array, fields: pa.MapArray) -> Iterator[BatchAndMisfits]:
        """Yield entries, in the order of their IDs, as the stream's own encoder makes them."""
        ms, seq = split_ids(ids)
        entries = [
            (time, sequence, [word for pair in pairs or () for word in pair])
            for time, sequence, pairs in zip(ms.to_pylist(), seq.to_pylist(), fields.to_pylist(), strict=True)
        ]
        for encoded in encode_entries(entries, self._layout, self._stream):
            yield self._assembler.assemble(encoded)

    def _cast(self, rows: pa.RecordBatch, path: str) -> BatchAndMisfits:
        """Cast rows. Raises HeadraceError for a value that does not fit, or is missing and must not be."""
        batch = cast_rows(rows, self._layout.specs, self._layout.schema, self._stream, path)
        for field, array in zip(batch.schema, batch.columns, strict=True):
            if array.null_count and not field.nullable:
                raise HeadraceError(f"{path}: the column {field.name} has a null; make it nullable")
        return batch, []
