"""The figures in README.md are those of docs/bench.md and docs/performance.md, the weakest included."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLUMNS = {"throughput": 1, "99.9th percentile of latency": 7}  # of the first table of bench.md
ELSEWHERE = ("Spark, typed", "`headrace archive`", "durable `add`", "XADD of 16 KiB, TLS")


def table(text: str) -> dict[str, list[str]]:
    """Return the cells of each row of the tables, by the first cell; the first row of a name counts."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[0]: row[1:] for row in reversed(rows) if len(row) > 1 and row[0]}


def ratio(row: list[str], measure: str) -> str:
    """Return the ratio that bench.md has; the last cell of the tables with three figures."""
    return (row[COLUMNS[measure]] if len(row) > 3 else row[2]).strip("()*")


README = table((ROOT / "README.md").read_text().partition("## Performance")[2].partition("\n## ")[0])
BENCH = table((ROOT / "docs" / "bench.md").read_text())


def test_rows_of_the_benchmark_are_the_same() -> None:
    compared = 0
    for name, cells in README.items():
        if name.startswith(ELSEWHERE) or not re.match(r"\d", cells[0]):
            continue
        row, _, measure = name.partition(": ")
        assert cells[0] == ratio(BENCH[row], measure), name
        compared += 1
    assert compared >= 20


def test_other_rows_are_on_the_page_about_performance() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    for name, cells in README.items():
        if name.startswith(ELSEWHERE):
            assert f"| {cells[0]} |" in page, name


def test_the_five_weakest_throughputs_are_shown() -> None:
    found = [
        (float(ratio(row, "throughput")), name)
        for name, row in BENCH.items()
        if len(row) > 3 and re.match(r"[(*\d]", row[1])
    ]
    missing = [name for _, name in sorted(found)[:5] if f"{name}: throughput" not in README]
    assert not missing, f"weak rows that README.md leaves out: {missing}"
