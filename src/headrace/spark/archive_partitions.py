"""Read row groups of an archive into record batches of a schema, in a Spark task.

An archive stores the fields of an entry as one map, or each in a column of its own.

    id               fields                         a map: encoded as a reply of XRANGE, and decoded by the
    1000-0           {n: 1, t: x}                   decoder of replies, so values, modes and errors are the
    *2 $6 1000-0 *4 $1 n $1 1 $1 t $1 x             same as from the live stream

    id               n INT   t STRING               columns: cast to the types of the schema, or an error

An entry that these columns cannot represent exactly is stored in the column _exact. It is read from there,
and is also encoded as a reply.

Timestamps and sequences are derived from the IDs: Parquet's times may be coarser, or end earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.archive.files import EXACT_COLUMN, Archive
from headrace.archive.rows import (
    FileRowGroups,
    cast_rows,
    columns_to_read,
    exact_as_map,
    exact_fields,
    filter_id_range,
    has_fields_map,
    rows_per_batch,
)
from headrace.columns.specs import ColumnSpec
from headrace.errors import UsageError
from headrace.spark.decode.misfits import report_misfits
from headrace.spark.decode.page_tokenizer import ReplyPageTokenizer
from headrace.spark.decode.schema import BatchBuilder, ColumnLayout
from headrace.spark.options import Options
from headrace.spark.source.range_reader import BATCH_BYTES, BATCH_ROWS, log


@dataclass(frozen=True)
class ArchivePartition:
    """A task: the entries in row groups of one stream after `after`, up to and including `upto`.

    includes_all_rows: whether this includes all entries of the row groups.
    """

    stream: str
    files: tuple[FileRowGroups, ...]
    after: str
    upto: str
    includes_all_rows: bool


class ArchivePartitionReader:
    """Reads the entries of one partition of an archive as record batches."""

    def __init__(self, part: ArchivePartition, layout: ColumnLayout, options: Options) -> None:
        self._partition = part
        self._layout = layout
        self._mode = options.mode
        self._schema = layout.arrow_schema
        self._misfits = [0] * len(layout.decoded_specs())
        self._needs_fields = any(
            spec.kind not in ("stream", "id", "timestamp", "sequence") for spec in layout.specs
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the entries, file by file, in the order of the files."""
        for piece in self._partition.files:
            with piece.file.open() as file:
                yield from self._read_file(file, piece)

    def _read_file(self, file: pq.ParquetFile, piece: FileRowGroups) -> Iterator[pa.RecordBatch]:
        fields = has_fields_map(file.schema_arrow)
        columns = columns_to_read(file.schema_arrow, self._layout.specs) if self._needs_fields else ["id"]
        groups = list(piece.group_indexes)
        # Each row repeats the name of the stream: with a very long name a batch has fewer rows.
        max_rows = max(
            1, min(rows_per_batch(file, piece), BATCH_BYTES // max(len(self._partition.stream), 1))
        )
        for batch in file.iter_batches(max_rows, groups, columns, use_threads=False):  # a task has one core
            if batch.column("id").null_count:
                raise pa.ArrowInvalid("an entry has no ID")
            rows = (
                batch
                if self._partition.includes_all_rows
                else filter_id_range(batch, self._partition.after, self._partition.upto)
            )
            if rows.num_rows == 0:
                continue
            if fields and self._needs_fields:
                yield from self._decode_fields(rows.column("id"), exact_fields(rows))
            elif EXACT_COLUMN in rows.schema.names:
                yield from self._split_exact(rows, piece.file.path)
            else:
                yield self._cast(rows, piece.file.path)
        self._report(piece)

    def _split_exact(self, rows: pa.RecordBatch, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the other columns, then the rows of `_exact`."""
        is_exact = rows.column(EXACT_COLUMN).is_valid()
        plain, exact = rows.filter(pc.invert(is_exact)), rows.filter(is_exact)
        if plain.num_rows:
            yield self._cast(plain, path)
        if exact.num_rows:
            yield from self._decode_fields(exact.column("id"), exact_as_map(exact.column(EXACT_COLUMN)))

    def _cast(self, rows: pa.RecordBatch, path: str) -> pa.RecordBatch:
        return cast_rows(rows, self._layout.specs, self._schema, self._partition.stream, path)

    def _report(self, piece: FileRowGroups) -> None:
        """Report how many values of each column did not fit."""
        counts, self._misfits = self._misfits, [0] * len(self._misfits)
        report_misfits(
            self._partition.stream,
            f"{piece.file.path} {piece.group_indexes}",
            self._layout,
            counts,
            self._mode,
        )

    def _decode_fields(self, ids: pa.Array, fields: pa.MapArray) -> Iterator[pa.RecordBatch]:
        scanner = ReplyPageTokenizer()
        decoder = self._layout.new_decoder(scanner, self._partition.stream, self._mode)
        builder = BatchBuilder(self._layout, self._partition.stream)
        reply = as_xrange_reply(ids, fields)
        scanner.begin_page(b"")
        scanner.feed(reply, len(reply))
        scanner.scan()
        while not decoder.decode(BATCH_ROWS, BATCH_BYTES):
            yield builder.take(decoder)
        if decoder.row_count:
            yield builder.take(decoder)
        self._misfits = [
            before + now for before, now in zip(self._misfits, decoder.misfit_counts(), strict=True)
        ]
        if decoder.dropped_entries:
            log.warning(
                "%d malformed entries of the archive of %s were left out",
                decoder.dropped_entries,
                self._partition.stream,
            )


def check_columns(specs: list[ColumnSpec], archive: Archive) -> None:
    """Raise UsageError if an archive of columns cannot give a column of the schema.

    A field without a column of its own is null, or in `_exact`, as with a live stream.
    """
    names = archive.columns.names
    if has_fields_map(archive.columns):
        return
    if any(spec.kind == "fields" for spec in specs):
        raise UsageError(
            f"The archive {archive.location} has a column for each field, and no map of all fields: name the "
            'fields to read by a schema, such as .schema("_id STRING, carrier STRING").'
        )
    lacking = [spec.name for spec in specs if spec.name and spec.name not in names]
    if lacking and EXACT_COLUMN not in names:
        own = ("id", "timestamp", "sequence", EXACT_COLUMN)
        has = ", ".join(name for name in names if name not in own)
        raise UsageError(f"The archive {archive.location} has no column {lacking[0]!r}; it has {has}.")


def as_xrange_reply(ids: pa.Array, fields: pa.MapArray) -> bytearray:
    """Encode entries as the reply of a server to XRANGE."""
    keys, items, starts = fields.keys, fields.items, fields.offsets
    pairs = pc.binary_join_element_wise(as_bulk_strings(keys), as_bulk_strings(items), b"")
    texts = pc.binary_join(pa.ListArray.from_arrays(starts, pairs), b"")
    counts = pc.multiply(pc.subtract(starts.slice(1), starts.slice(0, len(fields))), 2)
    head = pa.scalar(b"*2\r\n", pa.binary())
    star, line = pa.scalar(b"*", pa.binary()), pa.scalar(b"\r\n", pa.binary())
    entries = pc.binary_join_element_wise(
        head, as_bulk_strings(ids), star, as_decimal_text(counts), line, texts, b""
    )
    _, offsets, data = entries.buffers()
    end = memoryview(offsets).cast("B").cast("i")[len(entries)]
    return bytearray(b"*%d\r\n" % len(ids)) + memoryview(data)[:end]


def as_bulk_strings(texts: pa.Array) -> pa.Array:
    """Encode each text as a bulk string."""
    texts = texts.cast(pa.binary())
    dollar, line = pa.scalar(b"$", pa.binary()), pa.scalar(b"\r\n", pa.binary())
    return pc.binary_join_element_wise(
        dollar, as_decimal_text(pc.binary_length(texts)), line, texts, line, b""
    )


def as_decimal_text(numbers: pa.Array) -> pa.Array:
    """Format numbers in decimal, as bytes."""
    return numbers.cast(pa.string()).cast(pa.binary())
