"""Print how many values did not fit their columns."""

from __future__ import annotations

from headrace.console.escaping import printable
from headrace.spark.decode.misfits import FIELDS_MAP_NAME, MisfitCounts


def summarize_misfits(counts: MisfitCounts) -> str:
    """Return a line about the values that did not fit their columns; empty if there are none."""
    columns = [
        f"{printable(stream)}.{printable(column)} {count:,}"
        for (stream, column), count in counts.items()
        if column != FIELDS_MAP_NAME
    ]
    if not columns:
        return ""
    return f"Values that do not fit their column, and are null there: {', '.join(columns)}"
