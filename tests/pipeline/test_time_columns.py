"""The choice of the time column, and the conversion of its values."""

import datetime
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import UsageError
from headrace.pipeline.loading.time_columns import MS_MAX, TimeColumn, choose_time_column

MS = 1357034400000  # 2013-01-01T10:00:00Z


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def chosen(rows: pa.RecordBatch, wanted: str | None = None) -> TimeColumn:
    found = choose_time_column(rows, wanted)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2013-01-01T10:00:00Z", None], [MS, None]),
        (["2013-01-01 10:00:00"], [MS]),
        (["2013-01-01T12:00:00+02:00"], [MS]),
        (["2013-01-01T10:00:00.1239Z", "2013-01-01T10:00:00.000999Z"], [MS + 123, MS]),
        (["2013-01-01T10:00:00.123456789"], [MS + 123]),
        (["2013-01-01"], [MS - 10 * 3600 * 1000]),
        (pa.array([datetime.date(2013, 1, 1)]), [MS - 10 * 3600 * 1000]),
        (pa.array([MS * 1000 + 999], pa.timestamp("us", "Europe/Berlin")), [MS]),
        (pa.array([MS // 1000], pa.timestamp("s")), [MS]),
    ],
)
def test_timestamps_of_all_kinds_become_milliseconds(values: Any, expected: list[int | None]) -> None:
    rows = batch(name=["x"] * len(values), when=values)
    column = chosen(rows)
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
def test_the_unit_of_bare_numbers_is_detected_by_their_size(value: Any, expected: int | None) -> None:
    known = str(MS) if isinstance(value, str) else MS
    rows = batch(size=[3, 3], ts=[known if expected is None else value, value])
    column = chosen(rows)
    assert column.name == "ts"
    assert column.milliseconds(rows)[1] == expected


def test_infinite_numbers_are_not_times() -> None:
    endless = batch(ts=[1.5e9, float("inf")])
    with pytest.raises(UsageError, match="column 'ts' is not a time"):
        choose_time_column(endless, "ts")
    with pytest.raises(UsageError, match="'ts' holds 'inf', which is not a number of seconds"):
        chosen(batch(ts=[1.5e9])).milliseconds(endless)


def test_a_well_known_name_wins_then_a_time_of_day_then_the_first() -> None:
    day, time = ["2013-01-01"], ["2013-01-01T10:00:00"]
    assert chosen(batch(born=day, seen=time, left=time)).name == "seen"
    assert chosen(batch(born=day, seen=time, timestamp=time)).name == "timestamp"
    assert chosen(batch(born=day, name=["x"])).name == "born"


@pytest.mark.parametrize(("wanted", "shown"), [("year", "2013"), ("count", "5"), ("day", "20130131")])
def test_years_and_counts_are_not_times_even_if_named(wanted: str, shown: str) -> None:
    rows = batch(year=["2013"], count=[5], day=[20130131])
    assert choose_time_column(rows) is None
    with pytest.raises(UsageError, match=f"column '{wanted}' holds '{shown}', which is too small a number"):
        choose_time_column(rows, wanted)


@pytest.mark.parametrize(
    ("day", "when"), [("1969-07-20", "before 1970"), ("9999-12-31T00:00:00Z", "later than now")]
)
def test_a_column_with_times_that_cannot_be_ids_is_not_guessed(day: str, when: str) -> None:
    reasons: list[str] = []
    rows = batch(born=["1985-10-26", day])
    assert choose_time_column(rows, on_unsuitable=reasons.append) is None
    assert reasons == [f"column 'born' is not used: it holds '{day}', {when}"]
    rows = batch(born=["1985-10-26", day], seen=["2013-01-01", "2013-01-02"])
    assert chosen(rows).name == "seen"


def test_a_later_wrong_time_of_a_guessed_column_says_how_to_choose() -> None:
    column = chosen(batch(born=["1985-10-26"]))
    with pytest.raises(UsageError, match=r"'1969-07-20'.*chosen for the IDs: .*--new-ids"):
        column.milliseconds(batch(born=["1969-07-20"]))
    with pytest.raises(UsageError, match=r"not a time from 1970 to 9999$"):
        chosen(batch(born=["1985-10-26"]), "born").milliseconds(batch(born=["1969-07-20"]))


def test_a_time_in_the_future_needs_an_option() -> None:
    rows = batch(ends=["2013-01-01", "9999-12-31"])
    with pytest.raises(UsageError, match=r"'9999-12-31', which is later than now.*--allow-future"):
        chosen(rows, "ends").milliseconds(rows)
    assert replace(chosen(rows, "ends"), latest_valid_ms=MS_MAX).milliseconds(rows)[1] == 253402214400000
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=20)
    assert chosen(batch(at=[tomorrow.isoformat()])) is not None


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array([0, 2_932_897], pa.date32()), "+10000-01-01"),
        (pa.array([0, 2**63 - 1], pa.timestamp("s")), "+292277026596-12-04T15:30:07"),
        (pa.array([0, -(2**63)], pa.timestamp("us", "UTC")), "-290308-12-21T19:59:05.224192Z"),
        (pa.array([0, -1], pa.timestamp("ns")), "1969-12-31T23:59:59.999999999"),
    ],
)
def test_a_time_far_away_is_reported_with_its_text(column: pa.Array, shown: str) -> None:
    found, wrong = TimeColumn("at").milliseconds_and_reasons(batch(at=column))
    assert found == [0, None] and list(wrong) == [1]
    assert f"'{shown}', which is not a time from 1970 to 9999" in wrong[1]


@pytest.mark.parametrize("wanted", ["name", "empty"])
def test_a_named_time_column_must_hold_times(wanted: str) -> None:
    rows = batch(name=["Ann"], empty=pa.array([None], pa.int64()))
    with pytest.raises(UsageError, match=f"column '{wanted}' is not a time"):
        choose_time_column(rows, wanted)


def test_a_named_time_column_must_exist() -> None:
    with pytest.raises(UsageError, match=r"no column 'at'; the columns are a, b"):
        choose_time_column(batch(a=[1], b=[2]), "at")


def test_a_later_value_that_is_not_a_time_is_reported() -> None:
    with pytest.raises(UsageError, match="'soon', which is not a time"):
        TimeColumn("at").milliseconds(batch(at=["2013-01-01", "soon"]))
    with pytest.raises(UsageError, match="'soon', which is not a number of milliseconds"):
        TimeColumn("at", 1_000_000).milliseconds(batch(at=["12", "soon"]))


def test_times_before_1970_and_after_9999_are_rejected() -> None:
    for value in ("1969-12-31T23:59:59.9995Z", "1066-10-14"):
        with pytest.raises(UsageError, match=f"{value}.*not a time from 1970 to 9999"):
            TimeColumn("at").milliseconds(batch(at=[value]))
    with pytest.raises(UsageError, match="in seconds is not a time from 1970 to 9999"):
        TimeColumn("at", 1_000_000_000).milliseconds(batch(at=[MS // 1000, MS]))


def test_invalid_values_are_reported_one_by_one_and_the_others_are_read() -> None:
    rows = batch(at=["2013-01-01T10:00:00Z", "soon", None, "2013-01-01T12:00:00+02:00", "1013-01-01"])
    found, wrong = TimeColumn("at").milliseconds_and_reasons(rows)
    assert found == [MS, None, None, MS, None]
    assert sorted(wrong) == [1, 4] and "'soon', which is not a time" in wrong[1]


def test_naive_and_zoned_times_in_one_column_are_both_read() -> None:
    rows = batch(at=["2013-01-01T10:00:00", "2013-01-01T12:00:00+02:00"])
    assert TimeColumn("at").milliseconds(rows) == [MS, MS]


@pytest.mark.parametrize(
    ("unit_ns", "name"),
    [(1_000_000_000, "seconds"), (1_000_000, "milliseconds"), (1_000, "microseconds"), (1, "nanoseconds")],
)
def test_the_unit_of_numbers_is_detected_and_named(unit_ns: int, name: str) -> None:
    values = [MS * 1_000_000 // unit_ns] * 2 + [0, None]
    for texts in (values, [None if v is None else str(v) for v in values]):
        column = chosen(batch(ts=texts))
        assert (column.unit_ns, column.unit_name) == (unit_ns, name)


def test_numbers_of_several_units_are_ambiguous() -> None:
    rows = batch(ts=[MS, MS // 1000])
    assert choose_time_column(rows) is None
    with pytest.raises(UsageError, match="holds numbers of milliseconds and of seconds"):
        choose_time_column(rows, "ts")


def test_small_numbers_under_a_well_known_name_are_not_times() -> None:
    assert choose_time_column(batch(time=["45", "61"])) is None


def test_a_few_wrong_values_do_not_hide_a_time_column() -> None:
    rows = batch(at=["soon"] + ["2013-01-01T10:00:00Z"] * 19)
    assert chosen(rows) == TimeColumn("at")
    rows = batch(ts=["n/a"] + [str(MS)] * 19)
    assert chosen(rows) == TimeColumn("ts", 1_000_000)


def test_rows_of_a_batch_without_the_column_have_no_time() -> None:
    assert TimeColumn("at").milliseconds(batch(other=["x", "y"])) == [None, None]
