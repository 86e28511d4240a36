"""Split SQL into names, literals and comments, as DuckDB and Spark do.

    SELECT `total:eu`, 'it''s' FROM "a""b" -- why
           quoted name literal      quoted comment

The dialects differ in their literals: in Spark a backslash escapes, in DuckDB there are $$literals$$.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

COMMENT_PATTERN = r"--[^\n]*|/\*.*?(?:\*/|\Z)"
BACKQUOTED_PATTERN = r"`(?:[^`]|``)+`"
DOUBLE_QUOTED_PATTERN = r'"(?:[^"]|"")+"'
SPARK_LITERAL_PATTERN = r"'(?:[^'\\]|\\.|'')*'"
DUCKDB_LITERAL_PATTERN = r"\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"

CALL_PATTERN = re.compile(r"\s*\(")
TABLE_NAME_PATTERN = re.compile(
    rf"\b(?:FROM|JOIN)\s+({BACKQUOTED_PATTERN}|{DOUBLE_QUOTED_PATTERN}|\w+)", re.IGNORECASE
)


def token_pattern(literal: str) -> re.Pattern[str]:
    """Return the pattern of all tokens that are not punctuation."""
    return re.compile(
        f"(?P<comment>{COMMENT_PATTERN})|(?P<literal>{literal})|(?P<back>{BACKQUOTED_PATTERN})|(?P<double>{DOUBLE_QUOTED_PATTERN})"
        r"|(?P<word>\w+)",
        re.DOTALL,
    )


@dataclass(frozen=True)
class Dialect:
    """The SQL of one engine.

    Attributes:
        tokens_pattern: Its tokens.
        whole_rows_pattern: The parts of a query, such as *, that read columns without naming them.
    """

    tokens_pattern: re.Pattern[str]
    whole_rows_pattern: re.Pattern[str]


SPARK_DIALECT = Dialect(
    token_pattern(SPARK_LITERAL_PATTERN),
    re.compile(r"\*|\|>|(?:^|\()\s*FROM\b|\b(?:NATURAL|PIVOT|UNPIVOT|TABLE)\b", re.IGNORECASE),
)
# DuckDB says for each scan which columns it needs. Only those of a condition must be named.
DUCKDB_DIALECT = Dialect(token_pattern(DUCKDB_LITERAL_PATTERN), re.compile(r"\*|\bCOLUMNS\b", re.IGNORECASE))


def identifiers(sql: str, dialect: Dialect = SPARK_DIALECT, functions: bool = True) -> list[str]:
    """Return the words and quoted names in the SQL, each once; functions: also the names before a `(`."""
    found = []
    for match in dialect.tokens_pattern.finditer(sql):
        if match["word"]:
            if functions or not CALL_PATTERN.match(sql, match.end()):
                found.append(match[0])
        elif match["back"] or match["double"]:
            found.append(unquoted(match[0]))
    return list(dict.fromkeys(found))


def unquoted(name: str) -> str:
    """Return a name without its quotes."""
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '`"' else name


def without_literals(sql: str, dialect: Dialect = SPARK_DIALECT) -> str:
    """Return the SQL without its string literals and comments."""
    return dialect.tokens_pattern.sub(
        lambda found: " " if found["comment"] or found["literal"] else found[0], sql
    )


def reads_whole_rows(sql: str, dialect: Dialect) -> bool:
    """Return whether the SQL reads columns that it does not name."""
    bare = dialect.tokens_pattern.sub(lambda found: found[0] if found["word"] else " ", sql)
    return dialect.whole_rows_pattern.search(re.sub(r"\(\s*\*\s*\)", "()", bare)) is not None


def quoted_for_duckdb(sql: str) -> str:
    """Return the SQL with names between double quotes instead of backticks."""

    def double_quoted(found: re.Match[str]) -> str:
        if not found["back"]:
            return found[0]
        return '"' + unquoted(found[0]).replace('"', '""') + '"'

    return DUCKDB_DIALECT.tokens_pattern.sub(double_quoted, sql)
