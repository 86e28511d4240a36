"""Query streams in SQL: each stream that a query names is a view of its name.

The columns of a stream are given by the caller, taken from an archive with typed columns, or inferred from a
sample of entries (inference). Each view also has _stream, _id, _timestamp and _sequence. Only columns that
the query names are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
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

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.client.url import explain_connection_errors
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.inference import field_types, sample_both_ends
from headrace.pipeline.interrupts import raise_if_interrupted
from headrace.pipeline.ordered_archive_reader import spark_fields
from headrace.pipeline.progress import follow_batches
from headrace.pipeline.sql_errors import sql_message
from headrace.pipeline.suggestions import did_you_mean
from headrace.spark.archive.files import Archive, read_archive
from headrace.spark.archive.local_paths import local_path
from headrace.spark.archive.partition_reader import EXACT_COLUMN, exact_fields, has_fields_map
from headrace.spark.decode.schema import RESERVED_COLUMNS
from headrace.spark.decode.time_formats import column_time_format

SAMPLE = 400  # entries of a stream, from both its ends; half as many of its archive
TYPES: dict[str, DataType] = {
    "BOOLEAN": BooleanType(),
    "BIGINT": LongType(),
    "DOUBLE": DoubleType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampType(),
    "STRING": StringType(),
}
METADATA = StructType(
    [
        StructField("_stream", StringType()),
        StructField("_id", StringType()),
        StructField("_timestamp", TimestampType()),
        StructField("_sequence", LongType()),
    ]
)
ARCHIVES_OWN = {"id", "timestamp", "sequence", "_corrupt_record", EXACT_COLUMN}
WORD = re.compile(r"`((?:[^`]|``)+)`|(\w+)")
TABLE = re.compile(r"\b(?:FROM|JOIN)\s+(`(?:[^`]|``)+`|\w+)", re.IGNORECASE)
LITERALS = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*")  # in which nothing is a name


@dataclass(frozen=True)
class StreamView:
    """The view of a stream.

    Attributes:
        stream: The stream's name, and the view's.
        columns: The columns that are read.
        sampled: From how many entries the types were inferred; 0 if they were not inferred.
        fields: All fields that a query could name.
    """

    stream: str
    columns: StructType
    sampled: int
    fields: tuple[str, ...] = ()


def register_views(
    spark: SparkSession,
    sql: str,
    url: str,
    *,
    archive: Path | None = None,
    fields: Mapping[str, StructType] | None = None,
    following: bool = False,
    options: Mapping[str, str] | None = None,
) -> list[StreamView]:
    """Create views of the streams that a query names.

    Args:
        spark: The session.
        sql: The query.
        url: The server.
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
    said = fields or {}
    archive = None if archive is None else local_path(archive)
    held = None if archive is None else read_archive(archive)
    tables = []
    with closing(Servers(url, reconnect_timeout=0)) as servers, explain_connection_errors(url):
        names = streams_in_query(sql, servers, held)
        for name in names:
            columns, sampled = said.get(name, said.get("")), 0
            if columns is None and held is not None:
                columns = archived_columns(held, name)
            if columns is None:
                sample = sampled_entries(servers, held, name)
                columns, sampled = inferred_columns(sample), len(sample)
            tables.append(StreamView(name, used_columns(sql, columns), sampled, tuple(columns.names)))
    if differ_in_case(names) or any(differ_in_case(table.columns.names) for table in tables):
        spark.conf.set("spark.sql.caseSensitive", "true")  # else one name would stand for both
    for table in tables:
        create_view(spark, url, table, archive, following, options or {})
    return tables


def differ_in_case(names: Sequence[str]) -> bool:
    """Return whether some of the names differ in nothing but case."""
    return len({name.lower() for name in names}) < len(names)


def identifiers(sql: str) -> list[str]:
    """The words and quoted names in the SQL, each once."""
    found = (
        match[1].replace("``", "`") if match[1] else match[2]
        for match in WORD.finditer(without_literals(sql))
    )
    return list(dict.fromkeys(found))


def without_literals(sql: str) -> str:
    """The SQL without its texts and comments."""
    return LITERALS.sub(" ", sql)


def streams_in_query(sql: str, servers: Servers, held: Archive | None) -> list[str]:
    """The streams that the SQL names. UsageError if there is none."""
    words = identifiers(sql)
    kinds = servers.request(words, lambda pipe, word: pipe.type(stream_key(word)))
    archived = {file.stream for file in held.files} if held else set()
    names = [word for word in words if kinds[word] == b"stream" or word in archived]
    if not names:
        wanted = TABLE.search(without_literals(sql))
        if wanted is not None:
            name = identifiers(wanted[1])[0]
            if hint := did_you_mean(name, [*archived, *servers.scan(".*")]):
                raise UsageError(f"there is no stream {name!r}{hint}")
        raise UsageError(
            "the query names no stream that exists; write its name as it is, between backticks if it has "
            "more than letters, digits and _, as in SELECT * FROM `orders:eu`"
        )
    return names


def archived_columns(held: Archive, stream: str) -> StructType | None:
    """The columns of an archive of columns; None if it has maps, or not the stream."""
    from pyspark.sql.pandas.types import from_arrow_schema

    for file in held.files:
        if file.stream == stream:
            schema = pq.read_schema(file.path)
            if has_fields_map(schema):
                return None
            noted = spark_fields(schema.metadata)
            found = from_arrow_schema(schema, prefer_timestamp_ntz=False)
            fields = [field for field in found if field.name not in ARCHIVES_OWN]
            return StructType([with_format(field, noted.get(field.name)) for field in fields])
    return None


def with_format(field: StructField, noted: StructField | None) -> StructField:
    """Return a column with the format that the archive's has, where the format `auto` does not include it."""
    if noted is None or column_time_format(noted, "auto") != "epoch_s":
        return field
    return StructField(field.name, field.dataType, field.nullable, {"comment": "epoch_s"})


def sampled_entries(servers: Servers, held: Archive | None, stream: str) -> list[Mapping[bytes, bytes]]:
    """The fields of some entries: the first and last of the stream, and of one of its archived files."""
    live = sample_both_ends(servers, [stream], SAMPLE)[stream]
    found = [] if isinstance(live, Exception) else live  # the archive may have it all the same
    files = [file for file in held.files if file.stream == stream] if held else []
    if files:
        with pq.ParquetFile(files[-1].path) as parquet:
            columns = [name for name in ("fields", EXACT_COLUMN) if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(SAMPLE // 2, [0], columns):
                found += [dict(pairs) for pairs in exact_fields(batch).to_pylist() if pairs is not None]
                break
    return found


def inferred_columns(sample: Iterable[Mapping[bytes, bytes]]) -> StructType:
    """Columns that hold what the entries of a sample hold.

    A field has none if its name is no text, or is one that the source has reserved.
    """
    reserved = {name.lower() for name in RESERVED_COLUMNS}
    kinds = {field_name(name): kind for name, kind in field_types(sample).items()}
    return StructType(
        [
            StructField(name, TYPES[kind])
            for name, kind in kinds.items()
            if name and name.lower() not in reserved
        ]
    )


def field_name(name: bytes) -> str:
    """A field's name; nothing if it is no text."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return ""


def used_columns(sql: str, columns: StructType) -> StructType:
    """The columns that the SQL speaks of, those of an entry itself among them; all, if it has a star."""
    own = {field.name.lower() for field in METADATA}
    every = StructType([*METADATA.fields, *(f for f in columns if f.name.lower() not in own)])
    if "*" in re.sub(r"\(\s*\*", "", without_literals(sql)):
        return every
    words = {word.lower() for word in identifiers(sql)}
    spoken = [field for field in every if field.name.lower() in words]
    return StructType(spoken or [METADATA["_sequence"]])


def create_view(
    spark: SparkSession,
    url: str,
    table: StreamView,
    archive: Path | None,
    following: bool,
    options: Mapping[str, str],
) -> None:
    """Makes the view of one stream."""
    reader = spark.readStream if following else spark.read
    reader = reader.format("headrace").option("url", url).option("assign", json.dumps([table.stream]))
    if archive is not None:
        reader = reader.option("archive", str(archive))
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
        known: The names of all streams, read when the query names a table that does not exist.

    Raises:
        UsageError: if Spark does not understand the SQL.
    """
    try:
        return spark.sql(sql)
    except PySparkException as error:
        raise UsageError(f"Spark: {sql_message(error, tables, known)}") from error


def follow_query(
    rows: DataFrame,
    most: int | None,
    on_result: Callable[[list[str], Iterable[Row], bool], None],
    seconds: float = 0.0,
) -> None:
    """Run a streaming query until it is interrupted.

    Args:
        rows: The query.
        most: Rows per result; None for all.
        on_result: Called after each batch with the column names, the rows, and whether they are the whole
            result (of a query that aggregates) or only new rows.
        seconds: The least time between two batches.

    Raises:
        KeyboardInterrupt: after a signal.
        HeadraceError: if Spark cannot run the query as a stream.
    """

    def show(whole: bool) -> Callable[[DataFrame, int], None]:
        def take(batch: DataFrame, number: int) -> None:
            found = batch.toLocalIterator() if most is None else batch.limit(most).collect()
            if whole or found:
                on_result(batch.columns, found, whole)

        return take

    for mode in ("complete", "append"):
        whole = mode == "complete"
        writer = rows.writeStream.outputMode(mode).foreachBatch(show(whole))
        try:
            query = writer.trigger(processingTime=f"{seconds} seconds").start()
        except PySparkException as error:
            if whole:
                continue  # it does not aggregate: its rows come once each
            raise HeadraceError(f"Spark cannot follow this query: {sql_message(error)}") from error
        for _ in follow_batches(query):
            raise_if_interrupted()
        return
