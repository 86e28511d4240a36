"""The results of the demo: ranks, worst hours, tables and the chart."""

import io
from pathlib import Path

import pyarrow.compute as pc
import pytest
from rich.console import Console

from headrace.cli.demo.data import FLIGHT_COUNT, SCHEDULED_COLUMN, carrier_name_by_code, flights
from headrace.cli.demo.drawing import carrier_table, draw_chart, hour_table
from headrace.cli.demo.query import Delays, Window, sum_by_carrier, sum_by_carrier_hour, worst_hours
from headrace.console.styles import bar

WINDOWS = {
    Window("2013-01-01 06:00", 6, "AA"): Delays(flights=40, departed=30, late=15, minutes=600),
    Window("2013-01-02 06:00", 6, "AA"): Delays(flights=10, departed=10, late=0, minutes=-40),
    Window("2013-01-01 06:00", 6, "UA"): Delays(flights=10, departed=10, late=10, minutes=1000),
    Window("2013-01-02 07:00", 7, "UA"): Delays(flights=5, departed=0),
}


def text_of(table: object) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_delays_add_up() -> None:
    carriers = sum_by_carrier(WINDOWS)
    assert list(carriers) == ["UA", "AA"]  # the latest first
    assert carriers["AA"] == Delays(flights=50, departed=40, late=15, minutes=560)
    assert (carriers["AA"].mean_minutes, carriers["AA"].late_fraction) == (14.0, 0.375)
    assert (carriers["AA"].cancelled_count, carriers["AA"].cancelled_fraction) == (10, 0.2)
    assert sum_by_carrier_hour(WINDOWS)["AA", 6] == carriers["AA"]


def test_no_departures_have_a_mean_of_zero() -> None:
    nothing = Delays()
    assert (nothing.mean_minutes, nothing.late_fraction, nothing.cancelled_fraction) == (0.0, 0.0, 0.0)


def test_the_worst_hours_are_those_of_all_carriers_with_enough_departures() -> None:
    assert worst_hours(WINDOWS, 5) == [("2013-01-01 06:00", Delays(50, 40, 25, 1600))]


def test_tables_fit_a_terminal_and_name_the_carriers() -> None:
    lines = text_of(carrier_table(sum_by_carrier(WINDOWS), carrier_name_by_code())).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert ["1", "United", "Air", "Lines", "UA", "15", "33.3%", "100.0", "████████", "100.0%"] in [
        line.split() for line in lines
    ]
    assert "2013-01-01 06:00" in text_of(hour_table(worst_hours(WINDOWS, 5)))


@pytest.mark.parametrize("windows", [WINDOWS, {Window("2013-01-01 06:00", 6, "??"): Delays(1, 0)}])
def test_the_chart_is_drawn_for_any_data(windows: dict[Window, Delays], tmp_path: Path) -> None:
    draw_chart(
        tmp_path / "chart.png", sum_by_carrier(windows), sum_by_carrier_hour(windows), carrier_name_by_code()
    )
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_bar_is_as_long_as_its_value_in_eighths() -> None:
    assert bar(1, 4, "red").plain == "████"
    assert bar(0.5, 3, "red").plain == "█▌ "
    assert bar(-1, 4, "red").plain == "    "


def test_all_flights_are_there_in_order_and_cancelled_ones_have_no_delay() -> None:
    table = flights()
    assert table.num_rows == FLIGHT_COUNT
    assert table["dep_delay"].null_count == 8_255
    scheduled = table[SCHEDULED_COLUMN].cast("int64").combine_chunks()
    assert pc.all(pc.less_equal(scheduled[:-1], scheduled[1:])).as_py()
    assert (table["time_hour"][0].as_py(), table[SCHEDULED_COLUMN][0].as_py().minute) == (
        "2013-01-01T10:00:00Z",
        15,
    )
    assert flights(7).num_rows == 7
