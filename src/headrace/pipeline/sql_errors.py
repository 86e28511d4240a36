"""Say what is wrong with a query: Spark's whole message, without the plan that it prints after it.

Spark's text of an error has up to three parts:

    [TABLE_OR_VIEW_NOT_FOUND] The table or view `ordrs` cannot be found ...; line 1 pos 14;
    'Project [*]                                       <- a plan, of no use to the author of the query
    == SQL ==                                          <- the query, with a mark under the wrong word
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headrace.errors import HeadraceError
from headrace.pipeline.progress import cause
from headrace.pipeline.suggestions import did_you_mean, nearest

NO_COLUMN = "UNRESOLVED_COLUMN"
NO_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
PLAN = re.compile(r";\n(?=\s*[+':!]*\s*[A-Z])")
SQL = re.compile(r"\n== SQL[^\n]*==\n(.*)\Z", re.DOTALL)
STACK = re.compile(r"\n\s*(?:JVM stacktrace:|at [\w.$]+\().*\Z", re.DOTALL)
CAUSE = re.compile(r"^Caused by: [\w.$]+: (.*?)(?=\n\s+at |\n\s+\.\.\. |\Z)", re.DOTALL | re.MULTILINE)
SUGGESTED = re.compile(r" Did you mean one of the following\? \[[^\]]*\]\.")
QUOTED = re.compile(r"`((?:[^`]|``)+)`")
OURS = re.compile(r"^headrace\.[\w.]+: ", re.MULTILINE)


class HasColumns(Protocol):
    """A table that a query names, and all that it could name of it."""

    @property
    def stream(self) -> str: ...

    @property
    def fields(self) -> tuple[str, ...]: ...


def sql_message(error: Exception, tables: Iterable[HasColumns] = (), known: Iterable[str] = ()) -> str:
    """Return what is wrong with a query.

    Args:
        error: What Spark raised.
        tables: Those that the query names; their columns are listed when one is missing.
        known: The names of all streams, one of which may be meant.
    """
    text = str(error).strip()
    if OURS.search(text):
        return cause(error)
    if causes := CAUSE.findall(text):  # as of what fails while rows are fetched
        text = causes[-1]
    message = PLAN.split(STACK.sub("", SQL.sub("", text)), maxsplit=1)[0].strip().rstrip(";")
    if NO_TABLE in text and (name := quoted_name(text)):
        return no_table(name, known)
    if NO_COLUMN in text:
        # Spark knows only the columns that the query names, and would propose one of those.
        return SUGGESTED.sub("", message) + columns_told(quoted_name(text), tables)
    marked = marked_word(text)
    return f"{message}, at {marked}" if marked else message


def no_table(name: str, known: Iterable[str]) -> str:
    """Return that there is no stream of a name, and which one may be meant."""
    return f"there is no stream {name!r}{did_you_mean(name, known)}"


def quoted_name(text: str) -> str:
    """Return the last part of the first quoted name of a message: name of `a`.`name`."""
    match = re.search(r"(?:`(?:[^`]|``)+`\.?)+", text)
    parts = QUOTED.findall(match[0]) if match else []
    return parts[-1].replace("``", "`") if parts else ""


def columns_told(name: str, tables: Iterable[HasColumns]) -> str:
    """Return the columns of each table, and the one that may be meant."""
    tables = list(tables)
    found = nearest(name, (field for table in tables for field in table.fields))
    hint = f"; did you mean `{found}`?" if found else ""
    return hint + "".join(f"; {table.stream} has {', '.join(table.fields)}" for table in tables)


def marked_word(text: str) -> str:
    """Return the line of the query that Spark marks, with >>> before the word; nothing without a mark."""
    lines = SQL.search(text)
    before = ""
    for line in lines[1].split("\n") if lines else ():
        if re.fullmatch(r"-*\^+", line):
            at = line.index("^")
            return f"{before[:at]}>>>{before[at:]}".strip()
        before = line
    return ""


@contextmanager
def query_failures_explained() -> Iterator[None]:
    """Turn what Spark raises while a query runs into a HeadraceError of one message."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise HeadraceError(f"the query failed: {sql_message(error)}") from error
