"""Run SHOW TABLES and DESCRIBE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.archive.files import Archive, read_archive
from headrace.archive.location import ArchiveLocation
from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.columns.declarations import DeclaredColumns, type_name
from headrace.columns.layout import ENTRY_COLUMNS
from headrace.errors import UsageError
from headrace.plurals import plural
from headrace.queries.hints import WRITING_STATEMENTS, no_stream_message, write_rejected_message
from headrace.queries.views import optional_servers, table_columns

NAME_PATTERN = r"(`(?:[^`]|``)+`|[^\s`;]+)"
SHOW_TABLES_PATTERN = re.compile(r"\s*SHOW\s+TABLES(?:\s+(?:LIKE\s+)?'([^']*)')?\s*;?\s*", re.IGNORECASE)
DESCRIBE_PATTERN = re.compile(
    rf"\s*DESC(?:RIBE)?\s+(?:TABLE\s+)?(?:EXTENDED\s+|FORMATTED\s+)?{NAME_PATTERN}\s*;?\s*", re.IGNORECASE
)
WRITING_STATEMENT_PATTERN = re.compile(rf"\s*({'|'.join(WRITING_STATEMENTS)})\b", re.IGNORECASE)
Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class CatalogStatement:
    """SHOW TABLES or DESCRIBE.

    Attributes:
        table: The table to describe; None for SHOW TABLES.
        pattern: The names of the tables to show: `*` for any characters, `|` between alternatives.
    """

    table: str | None
    pattern: str = "*"


def reject_writes(sql: str) -> None:
    """Raise UsageError if the SQL is a statement that writes."""
    if statement := WRITING_STATEMENT_PATTERN.match(sql):
        raise UsageError(write_rejected_message(statement[1].upper()))


def parse_catalog_statement(sql: str) -> CatalogStatement | None:
    """Parse SHOW TABLES or DESCRIBE; return None for any other statement."""
    if match := SHOW_TABLES_PATTERN.fullmatch(sql):
        return CatalogStatement(None, "*" if match[1] is None else match[1])
    if match := DESCRIBE_PATTERN.fullmatch(sql):
        name = match[1]
        return CatalogStatement(name[1:-1].replace("``", "`") if name.startswith("`") else name)
    return None


def run_catalog_statement(
    statement: CatalogStatement,
    url: str | None,
    archive: ArchiveLocation | None = None,
    fields: Mapping[str, DeclaredColumns] | None = None,
) -> tuple[list[str], Rows]:
    """Run SHOW TABLES or DESCRIBE.

    Args:
        statement: The statement.
        url: The server; None to read only the archive.
        archive: An archive that belongs to the tables; None if there is none.
        fields: Declared columns by stream; those under "" are for all other streams.

    Returns:
        The column names, and the rows.

    Raises:
        UsageError: if there is no such table.
        HeadraceError: if the server is not reachable.
    """
    contents = None if archive is None else read_archive(archive)
    with optional_servers(url) as servers:
        if statement.table is None:
            return show_tables(servers, contents, statement.pattern)
        return describe_table(servers, contents, statement.table, fields or {})


def known_tables(servers: Servers | None, contents: Archive | None) -> list[str]:
    """Return the names of all streams, on the server and in the archive."""
    archived = {file.stream for file in contents.files} if contents else set()
    return sorted(archived.union(servers.matching_streams(re.compile(".*", re.DOTALL)) if servers else ()))


def show_tables(servers: Servers | None, contents: Archive | None, pattern: str) -> tuple[list[str], Rows]:
    """Return a row for each table: entries on the server and in the archive, the last archived ID."""
    alternatives = [".*".join(map(re.escape, part.split("*"))) for part in pattern.split("|")]
    matches = re.compile("|".join(alternatives), re.IGNORECASE | re.DOTALL).fullmatch
    names = [name for name in known_tables(servers, contents) if matches(name)]
    lengths = servers.request_each(names, lambda pipe, name: pipe.xlen(stream_key(name))) if servers else {}
    archived = Counter[str]()
    for file in contents.files if contents is not None else ():
        archived[file.stream] += file.rows
    titles = ["table"]
    titles += ["entries"] if servers is not None else []
    titles += ["archived", "archived_through"] if contents is not None else []
    rows: Rows = []
    for name in names:
        row: list[object] = [name]
        if servers is not None:
            row.append(lengths[name] if isinstance(lengths.get(name), int) else None)
        if contents is not None:
            row += [archived[name], contents.archived_through.get(name)]
        rows.append(tuple(row))
    return titles, rows


def describe_table(
    servers: Servers | None, contents: Archive | None, name: str, fields: Mapping[str, DeclaredColumns]
) -> tuple[list[str], Rows]:
    """Return a row for each column of a table: its name, its type, the source of the type."""
    tables = known_tables(servers, contents)
    if name not in tables:
        raise UsageError(no_stream_message(name, tables))
    of = table_columns(servers, contents, name, fields)
    is_declared = name in fields or "" in fields

    def known_from(column: str) -> str:
        if column in of.inferred_names:
            return f"inferred from {plural(of.sampled_entry_count, 'entry')}"
        return "declared by --fields" if is_declared else "column of the archive"

    rows: Rows = [(field.name, type_name(field.type), "of every entry") for field in ENTRY_COLUMNS]
    own = set(ENTRY_COLUMNS.names)
    rows += [
        (field.name, type_name(field.type), known_from(field.name))
        for field in of.fields
        if field.name not in own
    ]
    return ["column", "type", "known_from"], rows
