"""`headrace query`: its options and its output. What Spark answers is tested in tests/pipeline."""

from __future__ import annotations

import io

import pytest
from click.testing import CliRunner
from pyspark.sql import Row
from rich.console import Console

from headrace.cli.query import command, grid, write
from headrace.errors import UsageError


def test_follow_and_archive_exclude_each_other() -> None:
    done = CliRunner().invoke(command, ["SELECT 1", "--follow", "--archive", "x"])
    assert isinstance(done.exception, UsageError) and "--follow" in str(done.exception)


def test_rows_are_drawn_with_numbers_to_the_right() -> None:
    rows = [Row("[red]", 5), Row(None, 12345)]
    console = Console(file=io.StringIO(), width=60)
    console.print(grid(["na[me]", "n"], rows))
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if "│" in line]
    assert lines == ["│ [red]  │     5 │", "│        │ 12345 │"]
    assert "na[me]" in console.file.getvalue()


def test_rows_are_written_for_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row("a,b", 1.5, Row(x=1)), Row(None, None, None)]
    write("csv", ["t", "n", "r"], rows)
    assert capsys.readouterr().out == 't,n,r\n"a,b",1.5,Row(x=1)\n,,\n'
    write("json", ["t", "n", "r"], rows)
    assert capsys.readouterr().out == (
        '{"t": "a,b", "n": 1.5, "r": {"x": 1}}\n{"t": null, "n": null, "r": null}\n'
    )
