"""Compose error messages about unknown streams and columns, with similar names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headrace.suggestions import nearest, suggestion_suffix

WRITING_STATEMENTS = ("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "DROP", "ALTER", "CREATE")


class HasColumns(Protocol):
    """A table of a query: its stream, and the names of all its columns."""

    @property
    def stream(self) -> str: ...

    @property
    def fields(self) -> tuple[str, ...]: ...


def no_stream_message(name: str, known: Iterable[str]) -> str:
    """Return the error for a stream that does not exist, with a similar name if there is one."""
    return f"there is no stream {name!r}{suggestion_suffix(name, known)}"


def no_table_message(sql: str, otherwise: str) -> str:
    """Return the error for a query that names no stream; otherwise: the error unless it begins with SHOW."""
    if sql.lstrip()[:4].upper() == "SHOW":
        return "SHOW TABLES: use headrace query, or in Python Database.streams()"
    return otherwise


def write_rejected_message(statement: str) -> str:
    """Return the error for a statement that writes, such as INSERT."""
    return f"a query only reads, so {statement} is not possible; use headrace add or load"


def column_hint(name: str, tables: Iterable[HasColumns]) -> str:
    """Return the end of an error message: a similar column, and the columns of each table."""
    tables = list(tables)
    found = nearest(name, (field for table in tables for field in table.fields))
    hint = f"; did you mean `{found}`?" if found else ""
    return hint + "".join(f"; {table.stream} has {', '.join(table.fields)}" for table in tables)
