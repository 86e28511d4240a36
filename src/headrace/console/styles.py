"""Colours of the drawings, and the format of sizes, ages and bars in them."""

from __future__ import annotations

from rich.text import Text

from headrace.console import node_parser

GREY = "grey50"
FAINT = "grey37"
MS = "#5fd7ff"  # the two halves of an ID
SEQ = "#5f87ff"
DONE = "#5faf5f"
WAITING = "grey30"
PENDING = "#ffaf00"
ALERT = "#ff5f5f"  # errors, deleted entries, delays, lost links

ROLE_COLOURS = {
    node_parser.HEADER: "#8a8a8a",
    node_parser.MASTER: "#d787ff",
    node_parser.FIELD: "#ff87d7",
    node_parser.FLAGS: "#ffd75f",
    node_parser.DELTA: "#5fd7ff",
    node_parser.VALUE: "#5fd787",
    node_parser.COUNT: "#ff875f",
    node_parser.TRAIL: "#5f5f87",
    node_parser.DEAD: "#a04545",
}
ROLE_LABELS = {
    node_parser.HEADER: "header and end",
    node_parser.MASTER: "master entry",
    node_parser.FIELD: "field names",
    node_parser.FLAGS: "flags",
    node_parser.DELTA: "ID deltas",
    node_parser.VALUE: "values",
    node_parser.COUNT: "lp-count",
    node_parser.TRAIL: "trailing lengths",
    node_parser.DEAD: "deleted",
}
CONSUMER_COLOURS = ["#5fd7ff", "#ff87d7", "#ffd75f", "#5fd787", "#ff875f", "#af87ff", "#d7d787", "#87afaf"]
EIGHTHS = " ▏▎▍▌▋▊▉█"


def format_size(n: float) -> str:
    """Return a number of bytes in its largest binary unit, such as "11.2 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:,.0f} {unit}" if unit == "B" else f"{n:,.1f} {unit}"
        n /= 1024
    raise AssertionError


def format_cold_entries(entries: int, size: float) -> str:
    """Return a number of entries in files, and the memory that they would take, as "27,000 (1.2 MiB)"."""
    return f"{entries:,} ({format_size(size)})"


def format_age(ms: float) -> str:
    """Return a duration in its largest unit, such as "4.2 s" or "1.5 h"."""
    seconds = max(ms, 0) / 1000
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(ms, 0):.0f} ms"


def truncate(text: str, length: int) -> str:
    """Return the text, cut to at most `length` characters with an ellipsis."""
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"


def bar(share: float, width: int, style: str) -> Text:
    """Return a bar of `share` (0 to 1) of the width, drawn in eighths of a character and padded."""
    eighths = round(8 * width * min(max(share, 0.0), 1.0))
    blocks = "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
    return Text(blocks.ljust(width), style)
