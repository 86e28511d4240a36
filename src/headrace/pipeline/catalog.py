"""SHOW TABLES and DESCRIBE: what could be asked in SQL. Answered without starting Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import StructType

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.client.url import explain_connection_errors
from headrace.errors import UsageError
from headrace.pipeline.query import METADATA, archived_columns, inferred_columns, sampled_entries
from headrace.pipeline.sql_errors import no_table
from headrace.plurals import plural
from headrace.spark.archive.files import Archive, read_archive

NAME = r"(`(?:[^`]|``)+`|[^\s`;]+)"
SHOW = re.compile(r"\s*SHOW\s+TABLES(?:\s+(?:LIKE\s+)?'([^']*)')?\s*;?\s*", re.IGNORECASE)
DESCRIBE = re.compile(
    rf"\s*DESC(?:RIBE)?\s+(?:TABLE\s+)?(?:EXTENDED\s+|FORMATTED\s+)?{NAME}\s*;?\s*", re.IGNORECASE
)
WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE|MERGE|TRUNCATE|DROP|ALTER|CREATE)\b", re.IGNORECASE)
Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class CatalogStatement:
    """A statement about tables.

    Attributes:
        table: The one to describe; None for SHOW TABLES.
        pattern: Which tables to show: * for anything, | between alternatives.
    """

    table: str | None
    pattern: str = "*"


def check_reads(sql: str) -> None:
    """Raise UsageError if the SQL is a statement that writes."""
    if written := WRITES.match(sql):
        raise UsageError(
            f"a query only reads: {written[1].upper()} is not possible; see headrace add and headrace load"
        )


def catalog_statement(sql: str) -> CatalogStatement | None:
    """Return what the SQL asks about tables; None if it is a query."""
    if shown := SHOW.fullmatch(sql):
        return CatalogStatement(None, "*" if shown[1] is None else shown[1])
    if described := DESCRIBE.fullmatch(sql):
        name = described[1]
        return CatalogStatement(name[1:-1].replace("``", "`") if name.startswith("`") else name)
    return None


def catalog_rows(
    statement: CatalogStatement,
    url: str,
    archive: Path | None = None,
    fields: Mapping[str, StructType] | None = None,
) -> tuple[list[str], Rows]:
    """Return the column names and rows that answer a statement.

    Args:
        statement: What is asked.
        url: Of the server.
        archive: The directory of an archive, if one belongs to the tables.
        fields: Declared columns by stream; those under "" are of all others.

    Raises:
        UsageError: if there is no such table.
        HeadraceError: if there is no server.
    """
    held = None if archive is None else read_archive(archive)
    with closing(Servers(url, reconnect_timeout=0)) as servers, explain_connection_errors(url):
        if statement.table is None:
            return show_tables(servers, held, statement.pattern)
        return describe(servers, held, statement.table, fields or {})


def known_tables(servers: Servers, held: Archive | None) -> list[str]:
    """Return the names of all streams, on the server and in the archive."""
    archived = {file.stream for file in held.files} if held else set()
    return sorted(archived.union(servers.scan(re.compile(".*", re.DOTALL))))


def show_tables(servers: Servers, held: Archive | None, pattern: str) -> tuple[list[str], Rows]:
    """Return a row for each table: entries on the server, and up to which ID it is archived."""
    alternatives = [".*".join(map(re.escape, part.split("*"))) for part in pattern.split("|")]
    matches = re.compile("|".join(alternatives), re.IGNORECASE | re.DOTALL).fullmatch
    names = [name for name in known_tables(servers, held) if matches(name)]
    lengths = servers.request(names, lambda pipe, name: pipe.xlen(stream_key(name)))
    rows: Rows = []
    for name in names:
        length = lengths[name] if isinstance(lengths[name], int) else None
        rows.append((name, length) if held is None else (name, length, held.archived_through.get(name)))
    return ["table", "entries"] + (["archived_through"] if held is not None else []), rows


def describe(
    servers: Servers, held: Archive | None, name: str, fields: Mapping[str, StructType]
) -> tuple[list[str], Rows]:
    """Return a row for each column of a table: its type, and where that is known from."""
    tables = known_tables(servers, held)
    if name not in tables:
        raise UsageError(no_table(name, tables))
    columns, known_from = fields.get(name, fields.get("")), "declared by --fields"
    if columns is None and held is not None:
        columns, known_from = archived_columns(held, name), "column of the archive"
    if columns is None:
        sample = sampled_entries(servers, held, name)
        columns, known_from = inferred_columns(sample), f"guessed from {plural(len(sample), 'entry')}"
    rows: Rows = [(field.name, field.dataType.simpleString(), "of every entry") for field in METADATA]
    own = set(METADATA.names)
    rows += [
        (field.name, field.dataType.simpleString(), known_from) for field in columns if field.name not in own
    ]
    return ["column", "type", "known_from"], rows
