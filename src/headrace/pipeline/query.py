"""Streams as tables of SQL: each stream that a query names is a view of its name.

What a stream's columns are nobody has declared. So a few of its entries are looked at (inference); unless the
fields are said, or an archive has them as columns. Besides there are _stream, _id, _timestamp and _sequence.
Only columns that the query speaks of are read.
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

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.inference import both_ends, kinds_of
from headrace.pipeline.interrupts import raise_if_interrupted
from headrace.pipeline.ordered_archive_reader import spark_fields
from headrace.pipeline.progress import follow_batches
from headrace.pipeline.sql_errors import sql_message
from headrace.pipeline.suggestions import did_you_mean
from headrace.server_url import explain_connection_errors
from headrace.spark.archive.files import Archive, look
from headrace.spark.archive.local_paths import local_path
from headrace.spark.archive.partition_reader import EXACT, is_map, whole_fields
from headrace.spark.decode.schema import RESERVED
from headrace.spark.decode.time_formats import format_of
from headrace.spark.servers import Servers
from headrace.spark.stream_names import stream_key

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
ARCHIVES_OWN = {"id", "timestamp", "sequence", "_corrupt_record", EXACT}
WORD = re.compile(r"`((?:[^`]|``)+)`|(\w+)")
TABLE = re.compile(r"\b(?:FROM|JOIN)\s+(`(?:[^`]|``)+`|\w+)", re.IGNORECASE)
TEXTS = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*")  # in which nothing is a name


@dataclass(frozen=True)
class Table:
    """A view: its stream, the columns that are read, and from how many entries their types were guessed.

    fields: all that a query could name besides _id and the like.
    """

    stream: str
    columns: StructType
    sampled: int
    fields: tuple[str, ...] = ()


def register(
    spark: SparkSession,
    sql: str,
    url: str,
    *,
    archive: Path | None = None,
    fields: Mapping[str, StructType] | None = None,
    following: bool = False,
    options: Mapping[str, str] | None = None,
) -> list[Table]:
    """Makes views of the streams that the SQL names, on the server or in the archive; which those are.

    fields: what to read of a stream, by its name; under "" of all others. following: views that grow.
    options: of the source, for all; by default times may be in milliseconds or in ISO 8601. UsageError if the
    SQL names no stream; HeadraceError without a server.
    """
    said = fields or {}
    archive = None if archive is None else local_path(archive)
    held = None if archive is None else look(archive)
    tables = []
    with closing(Servers(url, reconnect_timeout=0)) as servers, explain_connection_errors(url):
        names = streams_named(sql, servers, held)
        for name in names:
            columns, sampled = said.get(name, said.get("")), 0
            if columns is None and held is not None:
                columns = archived_columns(held, name)
            if columns is None:
                sample = sampled_entries(servers, held, name)
                columns, sampled = guessed(sample), len(sample)
            tables.append(Table(name, pruned(sql, columns), sampled, tuple(columns.names)))
    if differ_in_case(names) or any(differ_in_case(table.columns.names) for table in tables):
        spark.conf.set("spark.sql.caseSensitive", "true")  # else one name would stand for both
    for table in tables:
        view(spark, url, table, archive, following, options or {})
    return tables


def differ_in_case(names: Sequence[str]) -> bool:
    """Return whether some of the names differ in nothing but case."""
    return len({name.lower() for name in names}) < len(names)


def words_of(sql: str) -> list[str]:
    """The words and quoted names in the SQL, each once."""
    found = (match[1].replace("``", "`") if match[1] else match[2] for match in WORD.finditer(plain(sql)))
    return list(dict.fromkeys(found))


def plain(sql: str) -> str:
    """The SQL without its texts and comments."""
    return TEXTS.sub(" ", sql)


def streams_named(sql: str, servers: Servers, held: Archive | None) -> list[str]:
    """The streams that the SQL names. UsageError if there is none."""
    words = words_of(sql)
    kinds = servers.request(words, lambda pipe, word: pipe.type(stream_key(word)))
    archived = {file.stream for file in held.files} if held else set()
    names = [word for word in words if kinds[word] == b"stream" or word in archived]
    if not names:
        wanted = TABLE.search(plain(sql))
        if wanted is not None:
            name = words_of(wanted[1])[0]
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
            if is_map(schema):
                return None
            noted = spark_fields(schema.metadata)
            found = from_arrow_schema(schema, prefer_timestamp_ntz=False)
            fields = [field for field in found if field.name not in ARCHIVES_OWN]
            return StructType([with_format(field, noted.get(field.name)) for field in fields])
    return None


def with_format(field: StructField, noted: StructField | None) -> StructField:
    """Return a column with the format that the archive's has, where the format `auto` does not include it."""
    if noted is None or format_of(noted, "auto") != "epoch_s":
        return field
    return StructField(field.name, field.dataType, field.nullable, {"comment": "epoch_s"})


def sampled_entries(servers: Servers, held: Archive | None, stream: str) -> list[Mapping[bytes, bytes]]:
    """The fields of some entries: the first and last of the stream, and of one of its archived files."""
    live = both_ends(servers, [stream], SAMPLE)[stream]
    found = [] if isinstance(live, Exception) else live  # the archive may have it all the same
    files = [file for file in held.files if file.stream == stream] if held else []
    if files:
        with pq.ParquetFile(files[-1].path) as parquet:
            columns = [name for name in ("fields", EXACT) if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(SAMPLE // 2, [0], columns):
                found += [dict(pairs) for pairs in whole_fields(batch).to_pylist() if pairs is not None]
                break
    return found


def guessed(sample: Iterable[Mapping[bytes, bytes]]) -> StructType:
    """Columns that hold what the entries of a sample hold.

    A field has none if its name is no text, or is one that the source has reserved.
    """
    reserved = {name.lower() for name in RESERVED}
    kinds = {text(name): kind for name, kind in kinds_of(sample).items()}
    return StructType(
        [
            StructField(name, TYPES[kind])
            for name, kind in kinds.items()
            if name and name.lower() not in reserved
        ]
    )


def text(name: bytes) -> str:
    """A field's name; nothing if it is no text."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return ""


def pruned(sql: str, columns: StructType) -> StructType:
    """The columns that the SQL speaks of, those of an entry itself among them; all, if it has a star."""
    own = {field.name.lower() for field in METADATA}
    every = StructType([*METADATA.fields, *(f for f in columns if f.name.lower() not in own)])
    if "*" in re.sub(r"\(\s*\*", "", plain(sql)):
        return every
    words = {word.lower() for word in words_of(sql)}
    spoken = [field for field in every if field.name.lower() in words]
    return StructType(spoken or [METADATA["_sequence"]])


def view(
    spark: SparkSession,
    url: str,
    table: Table,
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


def ask(spark: SparkSession, sql: str, tables: Sequence[Table] = (), known: Iterable[str] = ()) -> DataFrame:
    """Return the query's rows, not computed yet.

    Args:
        spark: The session that `register` made the views in.
        sql: The query.
        tables: What `register` returned; their columns are listed when the query names a missing one.
        known: The names of all streams, read when the query names a table that does not exist.

    Raises:
        UsageError: if Spark does not understand the SQL.
    """
    try:
        return spark.sql(sql)
    except PySparkException as error:
        raise UsageError(f"Spark: {sql_message(error, tables, known)}") from error


def keep_asking(
    rows: DataFrame,
    most: int | None,
    on_result: Callable[[list[str], Iterable[Row], bool], None],
    seconds: float = 0.0,
) -> None:
    """Runs a query over streams that grow, until interrupted: KeyboardInterrupt.

    After each batch on_result gets the column names, rows, and whether these are the whole result, as of a
    query that aggregates, or only what is new; `most` of them, all if None. seconds: at least so many between
    two batches.
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
