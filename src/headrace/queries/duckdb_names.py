"""Names that DuckDB confuses: it ignores case, and cuts the name of a column at a NUL character."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headrace.errors import UsageError


def names_equal_except_case(names: Iterable[str]) -> list[str]:
    """Return the names that differ from another one only in case, sorted."""
    names = sorted(set(names))
    count = Counter(name.lower() for name in names)
    return [name for name in names if count[name.lower()] > 1]


def ambiguous_columns(names: Iterable[str]) -> set[str]:
    """Return the columns that DuckDB cannot read: equal except for case, or with a NUL character."""
    names = set(names)
    return {name for name in names if "\0" in name}.union(names_equal_except_case(names))


def check_no_nul(columns: Iterable[str], instead: str) -> None:
    """Raise UsageError if the name of a column has a NUL character; `instead` says what to do."""
    if found := [name for name in columns if "\0" in name]:
        raise UsageError(f"{found[0]!r}: DuckDB cuts the name of a column at a NUL character; {instead}")
