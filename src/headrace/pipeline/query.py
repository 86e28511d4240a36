"""Query streams in SQL: each stream that a query names is a view of its name.

The columns of a stream are given by the caller, or those of an archive with typed columns and of a sample
of entries together (column_inference). Each view also has _stream, _id, _timestamp and _sequence. Only
columns that the query names are read. A field named id or date is the column id or date, with an archive as
without one: the archive's own columns of these names are not fields.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.archive.files import EXACT_COLUMN, Archive, read_archive
from headrace.archive.location import ArchiveLocation, archive_location
from headrace.archive.rows import has_fields_map
from headrace.client.servers import Servers, servers_at
from headrace.client.stream_names import stream_key
from headrace.columns.time_formats import SLASHED_DATE
from headrace.columns.value_types import DATE_WITH_SLASHES, field_types
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.column_declarations import InferredWith
from headrace.pipeline.field_sample import sample_fields
from headrace.pipeline.interrupts import raise_if_interrupted
from headrace.pipeline.query_errors import query_error_message
from headrace.pipeline.query_progress import follow_batches
from headrace.pipeline.spark_rows import record_batches
from headrace.pipeline.stream_dataset import place_options
from headrace.positions.stream_state import stream_states
from headrace.queries.sql_tokens import (
    SPARK,
    TABLE,
    Dialect,
    identifiers,
    reads_whole_rows,
    unquoted,
    without_literals,
)
from headrace.spark.archive_schema import ENTRY_COLUMNS
from headrace.spark.arrow_schemas import spark_columns
from headrace.spark.decode.schema import RESERVED_COLUMNS
from headrace.suggestions import did_you_mean

TYPES: dict[str, DataType] = {
    "BOOLEAN": BooleanType(),
    "BIGINT": LongType(),
    "DOUBLE": DoubleType(),
    "DATE": DateType(),
    DATE_WITH_SLASHES: DateType(),
    "TIMESTAMP": TimestampType(),
    "STRING": StringType(),
}
COMMENTS = {DATE_WITH_SLASHES: {"comment": SLASHED_DATE}}
METADATA = StructType(list(ENTRY_COLUMNS))
NOT_FIELDS = {"id", "timestamp", "sequence", "_corrupt_record", EXACT_COLUMN}  # columns of an archive
RESERVED_NAMES = {name.lower() for name in RESERVED_COLUMNS}


@dataclass(frozen=True)
class TableColumns:
    """The columns for the fields of a stream.

    Attributes:
        fields: All fields that a query can name.
        sampled: The number of entries from which types were inferred; 0 if none was inferred.
        inferred: The names of the fields whose types were inferred.
        hidden: Field names of the sample that cannot be columns.
        unread_files: The number of archived files that the sample has no entry of.
    """

    fields: StructType
    sampled: int = 0
    inferred: frozenset[str] = frozenset()
    hidden: tuple[str, ...] = ()
    unread_files: int = 0


@dataclass(frozen=True)
class StreamView:
    """The view of a stream.

    Attributes:
        stream: The stream's name, and the view's.
        columns: The columns that the query names.
        table: All columns that a query can name, and where they are known from.
        removed: The number of entries that were added to the stream and that the view lacks: they were
            trimmed or deleted, and no archive is read.
    """

    stream: str
    columns: StructType
    table: TableColumns
    removed: int = 0

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of all fields."""
        return tuple(self.table.fields.names)


def register_views(
    spark: SparkSession,
    sql: str,
    url: str | None,
    *,
    archive: str | os.PathLike[str] | ArchiveLocation | None = None,
    fields: Mapping[str, StructType] | None = None,
    following: bool = False,
    options: Mapping[str, str] | None = None,
) -> list[StreamView]:
    """Create views of the streams that a query names.

    Args:
        spark: The session.
        sql: The query.
        url: The server; None to read only the archive.
        archive: An archive; its entries and the live ones are one view.
        fields: Columns by stream; those under "" are for all other streams. Others are inferred.
        following: Create streaming views.
        options: Options of the source for all views. Default: times in milliseconds or ISO 8601.

    Returns:
        The views, in the order in which the query names them.

    Raises:
        UsageError: if the query names no stream.
        HeadraceError: if the server is not reachable.
    """
    views = find_views(sql, url, archive=archive, fields=fields)
    if differ_in_case([view.stream for view in views]) or any(
        differ_in_case(view.columns.names) for view in views
    ):
        spark.conf.set("spark.sql.caseSensitive", "true")  # otherwise both names mean the same column
    location = None if archive is None else archive_location(archive)
    for view in views:
        create_view(spark, url, view, location, following, options or {})
    return views


def find_views(
    sql: str,
    url: str | None,
    *,
    archive: str | os.PathLike[str] | ArchiveLocation | None = None,
    fields: Mapping[str, StructType] | None = None,
    dialect: Dialect = SPARK,
) -> list[StreamView]:
    """Return a view for each stream that a query names, in the order in which it names them.

    Args:
        sql: The query.
        url: The server; None to read only the archive.
        archive: An archive; its entries and the live ones are one view.
        fields: Columns by stream; those under "" are for all other streams. Others are inferred.
        dialect: The SQL of the query.

    Raises:
        UsageError: if the query names no stream.
        HeadraceError: if the server is not reachable.
    """
    declared = fields or {}
    location = None if archive is None else archive_location(archive)
    contents = None if location is None else read_archive(location)
    views = []
    with optional_servers(url) as servers:
        names = streams_in_query(sql, servers, contents, dialect)
        removed = {} if servers is None or contents is not None else removed_entries(servers, names)
        for name in names:
            table = table_columns(servers, contents, name, declared)
            used = used_columns(sql, table.fields, dialect)
            views.append(StreamView(name, used, table, removed.get(name, 0)))
    return views


def removed_entries(servers: Servers, streams: Iterable[str]) -> dict[str, int]:
    """Return how many entries of each stream were trimmed or deleted; 0 if the server does not count them."""
    states = stream_states(servers, streams)
    return {name: max(0, (state.entries_added or 0) - state.length) for name, state in states.items()}


@contextmanager
def optional_servers(url: str | None) -> Iterator[Servers | None]:
    """Yield the servers at a URL; None without one, if only an archive is read."""
    if url is None:
        yield None
        return
    with servers_at(url) as servers:
        yield servers


def table_columns(
    servers: Servers | None, contents: Archive | None, stream: str, declared: Mapping[str, StructType]
) -> TableColumns:
    """Return the columns of a stream: those that are declared, or of its archive and of a sample together.

    A column of the archive has the archive's type. A field that is no column of the archive, such as a new
    one of the live stream, gets its type from a sample.
    """
    columns = declared.get(stream, declared.get("", InferredWith()))
    if not isinstance(columns, InferredWith):
        return TableColumns(columns)
    archived = None if contents is None else archived_columns(contents, stream)
    known = StructType([] if archived is None else list(archived))
    own = set(columns.names)
    known = StructType([*columns, *(column for column in known if column.name not in own)])
    sample = sample_fields(servers, contents, stream)
    more = [column for column in inferred_columns(sample.entries) if column.name not in known.names]
    inferred = frozenset(column.name for column in more)
    return TableColumns(
        StructType([*known, *more]),
        len(sample.entries) if more else 0,
        inferred,
        hidden_fields(sample.entries),
        sample.unread_files,
    )


def differ_in_case(names: Sequence[str]) -> bool:
    """Return whether two of the names differ only in case."""
    return len({name.lower() for name in names}) < len(names)


def streams_in_query(
    sql: str, servers: Servers | None, contents: Archive | None, dialect: Dialect
) -> list[str]:
    """Return the streams that the SQL names, in order. UsageError if there is none."""
    words = identifiers(sql, dialect)
    key_types = servers.request(words, lambda pipe, word: pipe.type(stream_key(word))) if servers else {}
    archived = {file.stream for file in contents.files} if contents else set()
    names = [word for word in words if key_types.get(word) == b"stream" or word in archived]
    if not names:
        table = TABLE.search(without_literals(sql, dialect))
        if table is not None:
            name = unquoted(table[1])
            if hint := did_you_mean(name, [*archived, *(servers.scan(".*") if servers else ())]):
                raise UsageError(f"there is no stream {name!r}{hint}")
        kind = "existing" if servers else "archived"
        raise UsageError(
            f"the query names no {kind} stream; put a name that is more than letters, digits and _ between "
            "backticks, as in SELECT * FROM `orders:eu`"
        )
    return names


def archived_columns(contents: Archive, stream: str) -> StructType | None:
    """Return a stream's typed columns; None if the archive has a map of fields, or not the stream."""
    if has_fields_map(contents.columns) or all(file.stream != stream for file in contents.files):
        return None
    return spark_columns(pa.schema([each for each in contents.columns if each.name not in NOT_FIELDS]))


def inferred_columns(sample: Iterable[Mapping[bytes, bytes]]) -> StructType:
    """Return columns for the fields of a sample.

    A field whose name is not UTF-8, or is reserved by the Spark source, gets no column.
    """
    types = {field_name(name): kind for name, kind in field_types(sample).items()}
    return StructType(
        [
            StructField(name, TYPES[kind], metadata=COMMENTS.get(kind))
            for name, kind in types.items()
            if name and name.lower() not in RESERVED_NAMES
        ]
    )


def hidden_fields(sample: Iterable[Mapping[bytes, bytes]]) -> tuple[str, ...]:
    """Return the field names of a sample that cannot be columns: they are reserved, or not UTF-8."""
    names = dict.fromkeys(name for entry in sample for name in entry)
    return tuple(
        name.decode(errors="backslashreplace")
        for name in names
        if not field_name(name) or field_name(name).lower() in RESERVED_NAMES
    )


def field_name(name: bytes) -> str:
    """Return a field's name; empty if it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return ""


def used_columns(sql: str, columns: StructType, dialect: Dialect = SPARK) -> StructType:
    """Return the columns that the SQL names, including the metadata columns; all if it reads whole rows."""
    every = every_column(columns)
    if reads_whole_rows(sql, dialect):
        return every
    words = {word.lower() for word in identifiers(sql, dialect, functions=False)}
    named = [column for column in every if column.name.lower() in words]
    return StructType(named or [METADATA["_sequence"]])


def every_column(columns: StructType) -> StructType:
    """Return the metadata columns and those of the fields."""
    own = {column.name.lower() for column in METADATA}
    return StructType([*METADATA.fields, *(each for each in columns if each.name.lower() not in own)])


def create_view(
    spark: SparkSession,
    url: str | None,
    table: StreamView,
    archive: ArchiveLocation | None,
    following: bool,
    options: Mapping[str, str],
) -> None:
    """Create the view of one stream."""
    reader = spark.readStream if following else spark.read
    reader = reader.format("headrace").option("assign", json.dumps([table.stream]))
    reader = reader.options(**place_options(url, archive))
    if following:
        reader = reader.option("startingOffsets", "earliest")
    rows = reader.options(**{"timestampFormat": "auto", **options}).schema(table.columns).load()
    rows.createOrReplaceTempView("`" + table.stream.replace("`", "``") + "`")


def run_query(
    spark: SparkSession, sql: str, tables: Sequence[StreamView] = (), known: Iterable[str] = ()
) -> DataFrame:
    """Return the query's rows, not computed yet.

    Args:
        spark: The session with the views that `register_views` created.
        sql: The query.
        tables: The views that `register_views` returned; an error for a missing column lists theirs.
        known: The names of all streams, iterated only if the query names a table that does not exist.

    Raises:
        UsageError: if Spark rejects the SQL.
    """
    try:
        return spark.sql(sql)
    except PySparkException as error:
        raise UsageError(f"Spark: {query_error_message(error, tables, known)}") from error


def follow_query(
    rows: DataFrame,
    max_rows: int | None,
    on_result: Callable[[list[str], Iterable[pa.RecordBatch], bool], None],
    seconds: float = 0.0,
) -> None:
    """Run a streaming query until it is interrupted.

    Args:
        rows: The query.
        max_rows: Rows per result, at most; None for all.
        on_result: Called after each batch with the column names, the rows, and whether they are the whole
            result (of a query that aggregates) or only new rows.
        seconds: The minimum time between two batches, in seconds.

    Raises:
        KeyboardInterrupt: after a signal.
        HeadraceError: if Spark cannot run the query as a stream.
    """

    def batch_handler(whole: bool) -> Callable[[DataFrame, int], None]:
        def handle(batch: DataFrame, number: int) -> None:
            found = record_batches(batch if max_rows is None else batch.limit(max_rows))
            first = next(found, None)
            if whole or first is not None:
                on_result(batch.columns, found if first is None else itertools.chain([first], found), whole)

        return handle

    for mode in ("complete", "append"):
        whole = mode == "complete"
        writer = rows.writeStream.outputMode(mode).foreachBatch(batch_handler(whole))
        try:
            query = writer.trigger(processingTime=f"{seconds} seconds").start()
        except PySparkException as error:
            if whole:
                continue  # the query does not aggregate: append mode yields each row once
            raise HeadraceError(f"Spark cannot follow this query: {query_error_message(error)}") from error
        for _ in follow_batches(query):
            raise_if_interrupted()
        return
