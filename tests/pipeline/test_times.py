"""Which column is the time, and what it says."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import UsageError
from headrace.pipeline.times import TimeColumn, choose_time_column

MS = 1357034400000  # 2013-01-01T10:00:00Z


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2013-01-01T10:00:00Z", None], [MS, None]),
        (["2013-01-01 10:00:00"], [MS]),
        (["2013-01-01T12:00:00+02:00"], [MS]),
        (["2013-01-01T10:00:00.1239Z", "2013-01-01T10:00:00.000999Z"], [MS + 123, MS]),
        (["2013-01-01T10:00:00.123456789"], [MS + 123]),
        (["2013-01-01"], [MS - 10 * 3600 * 1000]),
        (["1969-12-31T23:59:59.9995Z"], [-1]),
        (pa.array([datetime.date(2013, 1, 1)]), [MS - 10 * 3600 * 1000]),
        (pa.array([MS * 1000 + 999], pa.timestamp("us", "Europe/Berlin")), [MS]),
        (pa.array([MS // 1000], pa.timestamp("s")), [MS]),
    ],
)
def test_timestamps_of_all_kinds_become_milliseconds(values: Any, expected: list[int | None]) -> None:
    rows = batch(name=["x"] * len(values), when=values)
    column = choose_time_column(rows)
    assert column == TimeColumn("when")
    assert column.milliseconds(rows) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (MS // 1000, MS),
        (str(MS // 1000), MS),
        (MS / 1000 + 0.25, MS + 250),
        (f"{MS // 1000}.25", MS + 250),
        (f"{MS // 1000}.123", MS + 123),
        (MS, MS),
        (MS * 1000 + 1, MS),
        (MS * 1_000_000 + 1, MS),
        (float("nan"), None),
        ("NaN", None),
    ],
)
def test_bare_numbers_tell_their_unit_by_their_size(value: Any, expected: int | None) -> None:
    known = str(MS) if isinstance(value, str) else MS
    rows = batch(size=[3, 3], ts=[known if expected is None else value, value])
    column = choose_time_column(rows)
    assert column.name == "ts"
    assert column.milliseconds(rows)[1] == expected


def test_infinite_numbers_are_no_times() -> None:
    endless = batch(ts=[1.5e9, float("inf")])
    with pytest.raises(UsageError, match="column 'ts' is not a time"):
        choose_time_column(endless, "ts")
    with pytest.raises(UsageError, match="'ts' holds an infinite number"):
        choose_time_column(batch(ts=[1.5e9])).milliseconds(endless)


def test_a_well_known_name_wins_then_a_time_of_day_then_the_first() -> None:
    day, time = ["2013-01-01"], ["2013-01-01T10:00:00"]
    assert choose_time_column(batch(born=day, seen=time, left=time)).name == "seen"
    assert choose_time_column(batch(born=day, seen=time, timestamp=time)).name == "timestamp"
    assert choose_time_column(batch(born=day, name=["x"])).name == "born"


def test_years_and_counts_are_no_times_unless_named() -> None:
    rows = batch(year=["2013"], count=[5])
    with pytest.raises(UsageError, match=r"no column looks like a time.*year, count"):
        choose_time_column(rows)
    assert choose_time_column(rows, "count").milliseconds(rows) == [5000]


@pytest.mark.parametrize("wanted", ["name", "empty"])
def test_a_wanted_column_must_be_a_time(wanted: str) -> None:
    rows = batch(name=["Ann"], empty=pa.array([None], pa.int64()))
    with pytest.raises(UsageError, match=f"column '{wanted}' is not a time"):
        choose_time_column(rows, wanted)


def test_a_wanted_column_must_be_there() -> None:
    with pytest.raises(UsageError, match=r"no column 'at'; the columns are a, b"):
        choose_time_column(batch(a=[1], b=[2]), "at")


def test_a_later_value_that_is_no_time_is_named() -> None:
    with pytest.raises(UsageError, match="'soon', which is not a time"):
        TimeColumn("at").milliseconds(batch(at=["2013-01-01", "soon"]))
    with pytest.raises(UsageError, match="not a number"):
        TimeColumn("at", 1_000_000).milliseconds(batch(at=["12", "soon"]))


def test_rows_of_a_batch_without_the_column_have_no_time() -> None:
    assert TimeColumn("at").milliseconds(batch(other=["x", "y"])) == [None, None]
