"""Describe errors of a query: Spark's message, without its plan and its stack trace.

Spark's text of an error has up to three parts:

    [TABLE_OR_VIEW_NOT_FOUND] The table or view `ordrs` cannot be found ...; line 1 pos 14;
    'Project [*]                                       <- Spark's plan, of no use to the query's author
    == SQL ==                                          <- the query, with a mark below the wrong word
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headrace.errors import HeadraceError
from headrace.queries.hints import HasColumns, column_hint, no_stream_message
from headrace.spark.errors import explain

UNKNOWN_COLUMN_CONDITION = "UNRESOLVED_COLUMN"
UNKNOWN_TABLE_CONDITION = "TABLE_OR_VIEW_NOT_FOUND"
PLAN_PATTERN = re.compile(r";\n(?=\s*[+':!]*\s*[A-Z])")
SQL_SECTION_PATTERN = re.compile(r"\n== SQL[^\n]*==\n(.*)\Z", re.DOTALL)
STACK_TRACE_PATTERN = re.compile(r"\n\s*(?:JVM stacktrace:|at [\w.$]+\().*\Z", re.DOTALL)
CAUSE_PATTERN = re.compile(
    r"^Caused by: [\w.$]+: (.*?)(?=\n\s+at |\n\s+\.\.\. |\Z)", re.DOTALL | re.MULTILINE
)
SUGGESTION_PATTERN = re.compile(r" Did you mean one of the following\? \[[^\]]*\]\.")
QUOTED_NAME_PATTERN = re.compile(r"`((?:[^`]|``)+)`")
HEADRACE_ERROR_PREFIX_PATTERN = re.compile(r"^headrace\.[\w.]+: ", re.MULTILINE)


def query_error_message(
    error: Exception, tables: Iterable[HasColumns] = (), known: Iterable[str] = ()
) -> str:
    """Return the message for an error that Spark raised for a query.

    Args:
        error: The error.
        tables: The query's tables; their columns are listed if the query names an unknown column.
        known: The names of all streams, for a suggestion if a table is unknown.
    """
    text = str(error).strip()
    if HEADRACE_ERROR_PREFIX_PATTERN.search(text):
        return explain(error)
    if causes := CAUSE_PATTERN.findall(text):  # as in errors while rows are fetched
        text = causes[-1]
    message = (
        PLAN_PATTERN.split(STACK_TRACE_PATTERN.sub("", SQL_SECTION_PATTERN.sub("", text)), maxsplit=1)[0]
        .strip()
        .rstrip(";")
    )
    if UNKNOWN_TABLE_CONDITION in text and (name := first_quoted_name(text)):
        return no_stream_message(name, known)
    if UNKNOWN_COLUMN_CONDITION in text:
        # Spark knows only the columns that the query names, so its own suggestion is one of them.
        return SUGGESTION_PATTERN.sub("", message) + column_hint(first_quoted_name(text), tables)
    line = marked_line(text)
    return f"{message}, at {line}" if line else message


def first_quoted_name(text: str) -> str:
    """Return the last part of a message's first quoted name, such as `b` of `a`.`b`; "" if none."""
    match = re.search(r"(?:`(?:[^`]|``)+`\.?)+", text)
    parts = QUOTED_NAME_PATTERN.findall(match[0]) if match else []
    return parts[-1].replace("``", "`") if parts else ""


def marked_line(text: str) -> str:
    """Return the line of the query that Spark marks, with >>> before the marked word; "" if none."""
    lines = SQL_SECTION_PATTERN.search(text)
    before = ""
    for line in lines[1].split("\n") if lines else ():
        if re.fullmatch(r"-*\^+", line):
            at = line.index("^")
            return f"{before[:at]}>>>{before[at:]}".strip()
        before = line
    return ""


@contextmanager
def query_errors_explained() -> Iterator[None]:
    """Convert errors that Spark raises in the block into a HeadraceError."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise HeadraceError(f"the query failed: {query_error_message(error)}") from error
    except (ValueError, OverflowError) as error:  # as for a time after the year 9999
        if isinstance(error, HeadraceError):
            raise
        raise HeadraceError(f"the query failed: Python cannot represent a value: {error}") from error
