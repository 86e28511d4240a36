"""Row groups of an archive as record batches of a schema: what a Spark task does with them.

An archive holds the fields of an entry as one map, or each in a column of its own.

    id               fields                         the map, decoded: written down once more as a server
    1000-0           {n: 1, t: x}                   answers XRANGE, and given to the decoder of answers, so
    *2 $6 1000-0 *4 $1 n $1 1 $1 t $1 x             values, modes and errors are those of the live stream

    id               n INT   t STRING               columns: cast to the types asked for, or refused

An entry that these columns do not give back exactly stands whole in the column _exact; then it is read from
there, as if a server had answered it.

Timestamps and sequences are made from the IDs, never read: Parquet's times may be coarser, or end earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import HeadraceError, UsageError
from headrace.spark.archive.files import split_ids
from headrace.spark.decode.misfits import report_misfits
from headrace.spark.decode.page_scanner import ReplyPageTokenizer
from headrace.spark.decode.schema import BatchBuilder, ColumnLayout, ColumnSpec
from headrace.spark.options import Options
from headrace.spark.source.offsets import parse_id
from headrace.spark.source.range_reader import BATCH_BYTES, BATCH_ROWS, log

CORRUPT_COLUMN = "_corrupt_record"  # what an older archive of columns keeps of an entry that did not fit them
EXACT_COLUMN = "_exact"  # the whole entry, where the other columns do not give it back byte for byte
BINARY_MAP = pa.map_(pa.binary(), pa.binary())


@dataclass(frozen=True)
class FileRowGroups:
    """Some row groups of a file."""

    path: Path
    groups: tuple[int, ...]


@dataclass(frozen=True)
class ArchivePartition:
    """A task: of the entries in some pieces of a stream those after `after`, up to and including `upto`.

    whole: all of them are.
    """

    stream: str
    files: tuple[FileRowGroups, ...]
    after: str
    upto: str
    whole: bool


class ArchivePartitionReader:
    """Reads one part."""

    def __init__(self, part: ArchivePartition, layout: ColumnLayout, options: Options) -> None:
        self._part = part
        self._layout = layout
        self._mode = options.mode
        self._schema = to_arrow_schema(layout.schema, timezone="UTC")
        self._misfits = [0] * len(layout.decoded_specs())
        self._decoded = any(
            spec.kind not in ("stream", "id", "timestamp", "sequence") for spec in layout.specs
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The entries, file by file, in the order in which they stand there."""
        for piece in self._part.files:
            try:
                file = pq.ParquetFile(piece.path, coerce_int96_timestamp_unit="us")
            except FileNotFoundError as gone:
                raise HeadraceError(
                    f"{piece.path} was there when the query was planned, and is gone: was the archive "
                    "compacted meanwhile? Run the query again."
                ) from gone
            with file:
                yield from self._read_file(file, piece)

    def _read_file(self, file: pq.ParquetFile, piece: FileRowGroups) -> Iterator[pa.RecordBatch]:
        fields = has_fields_map(file.schema_arrow)
        columns = self._needed_columns(file.schema_arrow, piece.path)
        most, groups = rows_per_batch(file, piece), list(piece.groups)
        most = max(1, min(most, BATCH_BYTES // max(len(self._part.stream), 1)))  # it stands in every row
        for batch in file.iter_batches(most, groups, columns, use_threads=False):  # a task has one core
            rows = batch if self._part.whole else filter_id_range(batch, self._part.after, self._part.upto)
            if rows.num_rows == 0:
                continue
            if fields and self._decoded:
                yield from self._decode_fields(rows.column("id"), exact_fields(rows))
            elif EXACT_COLUMN in rows.schema.names:
                yield from self._split_exact(rows, piece.path)
            else:
                yield self._cast_columns(rows, piece.path)
        self._report(piece)

    def _split_exact(self, rows: pa.RecordBatch, path: Path) -> Iterator[pa.RecordBatch]:
        """The rows that their columns hold, then those that stand in `_exact`."""
        kept = rows.column(EXACT_COLUMN).is_valid()
        plain, exact = rows.filter(pc.invert(kept)), rows.filter(kept)
        if plain.num_rows:
            yield self._cast_columns(plain, path)
        if exact.num_rows:
            yield from self._decode_fields(exact.column("id"), exact_as_map(exact.column(EXACT_COLUMN)))

    def _report(self, piece: FileRowGroups) -> None:
        """Tell how many values of each column did not fit."""
        counts, self._misfits = self._misfits, [0] * len(self._misfits)
        report_misfits(self._part.stream, f"{piece.path} {piece.groups}", self._layout, counts, self._mode)

    def _needed_columns(self, schema: pa.Schema, path: Path) -> list[str]:
        """Which columns of a file are needed. UsageError if it lacks one."""
        if not self._decoded:
            return ["id"]
        wanted = ["fields"]
        if not has_fields_map(schema):
            check_columns(self._layout.specs, schema, path)
            wanted = [CORRUPT_COLUMN if spec.kind == "corrupt" else spec.name for spec in self._layout.specs]
        wanted.append(EXACT_COLUMN)
        return ["id", *(name for name in wanted if name in schema.names)]

    def _decode_fields(self, ids: pa.Array, fields: pa.MapArray) -> Iterator[pa.RecordBatch]:
        scanner = ReplyPageTokenizer()
        decoder = self._layout.decoder(scanner, self._part.stream, self._mode)
        maker = BatchBuilder(self._layout, self._part.stream)
        answer = as_xrange_reply(ids, fields)
        scanner.begin_page(b"")
        scanner.feed(answer, len(answer))
        scanner.scan()
        while not decoder.decode(BATCH_ROWS, BATCH_BYTES):
            yield maker.take(decoder)
        if decoder.rows:
            yield maker.take(decoder)
        self._misfits = [before + now for before, now in zip(self._misfits, decoder.misfits(), strict=True)]
        if decoder.dropped:
            log.warning(
                "%d malformed entries of the archive of %s were left out", decoder.dropped, self._part.stream
            )

    def _cast_columns(self, rows: pa.RecordBatch, path: Path) -> pa.RecordBatch:
        """The rows in the columns of the schema. HeadraceError for a value that its type cannot hold."""
        ids = rows.column("id")
        ms, seq = split_ids(ids)
        arrays = []
        for spec, field in zip(self._layout.specs, self._schema, strict=True):
            try:
                if spec.kind == "stream":
                    array = pa.repeat(pa.scalar(self._part.stream, field.type), len(rows))
                elif spec.kind == "id":
                    array = ids.cast(field.type)
                elif spec.kind == "timestamp":
                    micros = pc.multiply_checked(ms.cast(pa.int64()), 1000)
                    array = micros.cast(pa.timestamp("us")).cast(field.type)
                elif spec.kind == "sequence":
                    array = seq.cast(field.type)
                elif spec.kind == "exact" or (
                    spec.kind == "corrupt" and CORRUPT_COLUMN not in rows.schema.names
                ):
                    array = pa.nulls(len(rows), field.type)
                elif spec.kind == "corrupt":
                    array = rows.column(CORRUPT_COLUMN).cast(field.type)
                else:
                    array = rows.column(spec.name).cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise HeadraceError(
                    f"{path}: the column {field.name} is not {field.type}: {error}"
                ) from error
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def check_columns(specs: list[ColumnSpec], schema: pa.Schema, path: Path) -> None:
    """UsageError if an archive of columns cannot give what is asked for."""
    if has_fields_map(schema):
        return
    if any(spec.kind == "fields" for spec in specs):
        raise UsageError(
            f"The archive has a column for each field, and no map of all fields ({path}): name the fields to "
            'read with a schema, such as .schema("_id STRING, carrier STRING").'
        )
    lacking = [spec.name for spec in specs if spec.name and spec.name not in schema.names]
    if lacking:
        own = ("id", "timestamp", "sequence", EXACT_COLUMN)
        has = ", ".join(name for name in schema.names if name not in own)
        raise UsageError(f"The archive has no column {lacking[0]!r}; it was written with {has} ({path}).")


def has_fields_map(schema: pa.Schema) -> bool:
    """Whether a file holds the fields as one map."""
    return "fields" in schema.names and pa.types.is_map(schema.field("fields").type)


def exact_as_map(exact: pa.ListArray) -> pa.MapArray:
    """The column `_exact` as maps, in which a name may come twice; a null stays one."""
    names, values = exact.values.flatten()
    offsets = pc.add(exact.offsets, 0)  # of their own: a null needs them to begin at their front
    missing = exact.is_null() if exact.null_count else None
    return pa.MapArray.from_arrays(offsets, names, values, mask=missing)


def exact_fields(rows: pa.RecordBatch) -> pa.MapArray:
    """The fields of rows of an archive of maps, as they were: of `_exact` where that is not null."""
    fields = rows.column("fields").cast(BINARY_MAP)
    if EXACT_COLUMN not in rows.schema.names or rows.column(EXACT_COLUMN).null_count == rows.num_rows:
        return fields
    kept = rows.column(EXACT_COLUMN).is_valid()
    both = pa.concat_arrays([fields, exact_as_map(rows.column(EXACT_COLUMN))])
    order = pa.array(range(rows.num_rows), pa.int64())
    return both.take(pc.if_else(kept, pc.add(order, rows.num_rows), order))


def rows_per_batch(file: pq.ParquetFile, piece: FileRowGroups) -> int:
    """How many rows of a file to take at once, so that large ones do not fill the memory."""
    groups = [file.metadata.row_group(group) for group in piece.groups]
    rows: int = sum(group.num_rows for group in groups)
    size: int = sum(group.total_byte_size for group in groups)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(size, 1)))


def filter_id_range(rows: pa.RecordBatch, after: str, upto: str) -> pa.RecordBatch:
    """The rows of IDs after one, up to and including another."""
    ms, seq = split_ids(rows.column("id"))
    low, high = ([pa.scalar(number, pa.uint64()) for number in parse_id(each)] for each in (after, upto))
    return rows.filter(
        pc.and_(
            pc.or_(pc.greater(ms, low[0]), pc.and_(pc.equal(ms, low[0]), pc.greater(seq, low[1]))),
            pc.or_(pc.less(ms, high[0]), pc.and_(pc.equal(ms, high[0]), pc.less_equal(seq, high[1]))),
        )
    )


def as_xrange_reply(ids: pa.Array, fields: pa.MapArray) -> bytearray:
    """What a server would have answered to XRANGE: entries in the protocol's form."""
    keys, items, starts = fields.keys, fields.items, fields.offsets
    pairs = pc.binary_join_element_wise(as_bulk_strings(keys), as_bulk_strings(items), b"")
    texts = pc.binary_join(pa.ListArray.from_arrays(starts, pairs), b"")
    counts = pc.multiply(pc.subtract(starts.slice(1), starts.slice(0, len(fields))), 2)
    head = pa.scalar(b"*2\r\n", pa.binary())
    star, line = pa.scalar(b"*", pa.binary()), pa.scalar(b"\r\n", pa.binary())
    entries = pc.binary_join_element_wise(
        head, as_bulk_strings(ids), star, as_decimal(counts), line, texts, b""
    )
    _, offsets, data = entries.buffers()
    end = memoryview(offsets).cast("B").cast("i")[len(entries)]
    return bytearray(b"*%d\r\n" % len(ids)) + memoryview(data)[:end]


def as_bulk_strings(texts: pa.Array) -> pa.Array:
    """Each text as a word of the protocol: its length, and itself."""
    texts = texts.cast(pa.binary())
    dollar, line = pa.scalar(b"$", pa.binary()), pa.scalar(b"\r\n", pa.binary())
    return pc.binary_join_element_wise(dollar, as_decimal(pc.binary_length(texts)), line, texts, line, b"")


def as_decimal(numbers: pa.Array) -> pa.Array:
    """Numbers in decimal, as bytes."""
    return numbers.cast(pa.string()).cast(pa.binary())
