"""Options and output of `headrace query`. Results of Spark are tested in tests/pipeline."""

from __future__ import annotations

import decimal
import io
from collections.abc import Callable
from typing import cast

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame
from rich.console import Console

from headrace.cli.commands.query import command
from headrace.cli.query import spark_query
from headrace.cli.query.output import grid, print_rows, write_rows
from headrace.cli.query.result_values import as_text, rows_of, to_json_value
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.querying.spark_errors import query_errors_explained

found = cast(DataFrame, None)  # what the tests follow instead
Show = Callable[[list[str], list[pa.RecordBatch], bool], None]


def batches(*numbers: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": list(numbers)})]


def test_follow_and_archive_exclude_each_other() -> None:
    done = CliRunner().invoke(command, ["SELECT 1", "--follow", "--archive", "x"])
    assert isinstance(done.exception, UsageError) and "--follow" in str(done.exception)


def test_an_option_of_the_store_needs_an_archive() -> None:
    done = CliRunner().invoke(command, ["SELECT 1", "--storage-option", "A=b"])
    assert isinstance(done.exception, UsageError) and "give it with --archive" in str(done.exception)


def test_numbers_are_aligned_to_the_right() -> None:
    rows = [("[red]", 5), (None, 12345)]
    console = Console(file=io.StringIO(), width=60)
    console.print(grid(["na[me]", "n"], rows))
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if "│" in line]
    assert lines == ["│ [red]  │     5 │", "│        │ 12345 │"]
    assert "na[me]" in console.file.getvalue()


def test_a_note_says_that_there_are_more_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_batch(rows: object, most: int, show: Show) -> None:
        show(["n"], batches(*range(100, 105)[:most]), False)

    monkeypatch.setattr(spark_query, "follow_query", one_batch)
    for shown, more in ((4, True), (5, False)):
        spark_query.print_followed(found, shown, None, "UTC")
        printed = capsys.readouterr().out
        assert (str(100 + shown - 1) in printed, str(100 + shown) in printed) == (True, False)
        assert (f"--rows shows more than {shown}" in printed) == more


def test_appended_csv_has_one_header_and_whole_results_one_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = False

    def two_batches(rows: object, most: int | None, show: Show) -> None:
        assert most is None  # all that come, not what --rows shows
        show(["n"], batches(1), whole)
        show(["n"], batches(2), whole)

    monkeypatch.setattr(spark_query, "follow_query", two_batches)
    spark_query.print_followed(found, 50, "csv", "UTC")
    assert capsys.readouterr().out == "n\n1\n2\n"
    whole = True
    spark_query.print_followed(found, 50, "csv", "UTC")
    assert capsys.readouterr().out == "n\n1\nn\n2\n"


def test_an_id_is_never_cut_on_a_narrow_terminal() -> None:
    rows = [("1767225600000-0", "x" * 30)]
    console = Console(file=io.StringIO(), width=24)
    console.print(grid(["_id", "value"], rows))
    assert isinstance(console.file, io.StringIO)
    cells = [line.split("│")[1].strip() for line in console.file.getvalue().splitlines() if "│" in line]
    assert "".join(cells) == "1767225600000-0"


def test_in_a_pipe_no_value_and_no_name_is_split(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"column_with_a_long_name_{n}" for n in range(20)]
    print_rows(names, [["a value that is long"] * 20], 10, None)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all(name in lines[1] for name in names) and lines[3].count("a value that is long") == 20


def test_rows_are_written_as_csv_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a,b", 1.5, {"x": 1}), (None, None, None)]
    write_rows("csv", ["t", "n", "r"], rows)
    assert capsys.readouterr().out == 't,n,r\n"a,b",1.5,"{""x"": 1}"\n,,\n'
    write_rows("json", ["t", "n", "r"], rows)
    assert capsys.readouterr().out == (
        '{"t": "a,b", "n": 1.5, "r": {"x": 1}}\n{"t": null, "n": null, "r": null}\n'
    )


def test_times_that_python_cannot_represent_are_printed_as_text() -> None:
    late = pa.array([253_402_300_799_999_999, 300_000_000_000_000_000, None], pa.int64())
    day = pa.array([2_932_896, 2_932_897, None], pa.int32()).cast(pa.date32())
    times = late.cast(pa.timestamp("us", "Asia/Tokyo"))
    batch = pa.record_batch({"t": times, "d": day, "l": pa.array([[1], None, None])})
    found = [[str(value) for value in row] for row in rows_of([batch], "Asia/Tokyo")]
    assert found == [
        ["+10000-01-01 08:59:59.999999", "9999-12-31", "[1]"],
        ["+11476-08-15 14:20:00", "+10000-01-01", "None"],
        ["None", "None", "None"],
    ]
    nested = pa.record_batch({"s": pa.array([[300_000_000_000_000_000]]).cast(pa.list_(pa.timestamp("us")))})
    assert list(rows_of([nested], "UTC")) == [(["+11476-08-15T05:20:00.000000"],)]
    first = pa.array([-62_135_596_800_000_000], pa.timestamp("us", "UTC"))
    [[here], [there]] = (
        next(rows_of([pa.record_batch([first], ["t"])], zone)) for zone in ("UTC", "America/New_York")
    )
    assert (as_text(here), there) == ("0001-01-01 00:00:00", "0000-12-31 19:03:58")
    with pytest.raises(HeadraceError, match="Python cannot represent a value"), query_errors_explained():
        times[1].as_py()


def test_a_sum_of_integers_is_an_integer() -> None:
    sums = pa.array([decimal.Decimal(2**64), None], pa.decimal128(38, 0))
    [[value], [null]] = rows_of([pa.record_batch({"s": sums})], "UTC")
    assert (value, type(value), null) == (2**64, int, None)


HOUR = [1_729_989_000_000_000, 1_729_992_600_000_000]  # 2024-10-27 02:30 in Berlin, twice


def test_both_instants_of_a_doubled_hour_are_printed_apart() -> None:
    wanted = ["2024-10-27 02:30:00+02:00", "2024-10-27 02:30:00+01:00"]
    batch = pa.record_batch({"t": pa.array(HOUR).cast(pa.timestamp("us", "UTC"))})
    assert [as_text(value) for [value] in rows_of([batch], "Europe/Berlin")] == wanted
    assert [as_text(value) for [value] in rows_of([batch], "UTC")] == [
        "2024-10-27 00:30:00",
        "2024-10-27 01:30:00",
    ]


def test_nested_values_are_valid_json_with_the_names_of_structs() -> None:
    pairs = pa.array([[{"q": 1, "w": "it's"}, None]])
    numbers_by_key = pa.array([[(5, float("nan"))]], pa.map_(pa.int64(), pa.float64()))
    [row] = rows_of([pa.record_batch({"a": pairs, "m": numbers_by_key})], "UTC")
    assert as_text(row[0]) == '[{"q": 1, "w": "it\'s"}, null]'
    assert as_text(row[1]) == '{"5": "NaN"}'
    numbers = [float("inf"), -float("inf"), 1.5, True, decimal.Decimal("1.50"), b"\xff"]
    assert to_json_value(numbers) == ["Infinity", "-Infinity", 1.5, True, "1.50", "\\xff"]
