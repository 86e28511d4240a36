"""Choose the columns of a table for which a console has room: names stay, figures give way."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 2  # cells between columns
NAME_MIN = 16  # cells of a name, or a third of the console; columns are left out first


def columns_that_fit(widths: Sequence[int], dropped: Sequence[int], width: int) -> list[int]:
    """Return the numbers of the columns to show.

    Args:
        widths: Of the columns in cells; the first one holds names, and may be made narrower.
        dropped: The numbers of columns in the order in which they give way.
        width: Of the console in cells.
    """
    chosen = list(range(len(widths)))
    names = min(widths[0], max(NAME_MIN, width // 3))
    for number in dropped:
        if names + sum(widths[column] + GAP for column in chosen[1:]) <= width:
            break
        chosen.remove(number)
    return chosen
