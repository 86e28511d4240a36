"""Choose the columns of a table that fit a console: names stay, other columns are left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

GAP = 2  # cells between columns
NAME_MIN = 16  # cells kept for a name, or a third of the console if that is more


def columns_that_fit(
    widths: Sequence[int], dropped: Sequence[int], width: int, hidden: Collection[int] = ()
) -> list[int]:
    """Return the indices of the columns to show.

    Args:
        widths: The width of each column in cells; the first one holds names, and may be made narrower.
        dropped: The indices of columns in the order in which they are left out.
        width: The width of the console in cells.
        hidden: The indices of columns that are never shown.
    """
    chosen = [column for column in range(len(widths)) if column not in hidden]
    names = min(widths[0], max(NAME_MIN, width // 3))
    for number in dropped:
        if names + sum(widths[column] + GAP for column in chosen[1:]) <= width:
            break
        if number in chosen:
            chosen.remove(number)
    return chosen
