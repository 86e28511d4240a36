"""`headrace trim`: streams made shorter by what is archived and acknowledged."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from headrace.cli.drawing import progress_bar
from headrace.cli.streams import url_option, wanted_streams
from headrace.cli.values import LocalPath
from headrace.console.rich_text import line
from headrace.pipeline.durations import milliseconds_in
from headrace.pipeline.trim import Trimmed, trim
from headrace.pipeline.trim_horizon import Wishes


@click.command(
    "trim",
    epilog="""\b
Examples:
  headrace trim --stream orders --dry-run
  headrace trim --pattern 'orders\\..*' --keep-for 2h --archive archive/orders
""",
)
@click.option("--stream", "names", multiple=True, help="The stream to trim; may be said several times.")
@click.option("--pattern", metavar="REGEX", help="All streams whose whole name matches.")
@url_option
@click.option(
    "--archive",
    type=LocalPath(existing_directory=True),
    help="The archive that counts; if left out, what archives have told the server.",
)
@click.option("--keep", type=click.IntRange(min=1), help="Keep at least so many entries.")
@click.option("--keep-for", metavar="TIME", help="Keep the entries of the last 2h, 30min, 7d.")
@click.option("--no-groups-ok", is_flag=True, help="Trim streams without consumer groups, too.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed, and why no more.")
def command(
    names: tuple[str, ...],
    pattern: str | None,
    url: str,
    archive: Path | None,
    keep: int | None,
    keep_for: str | None,
    no_groups_ok: bool,
    dry_run: bool,
) -> None:
    """Remove entries that are archived and that every consumer group has acknowledged, and no others.

    Says for each stream why it stopped where it did.
    """
    console = Console(highlight=False)
    wishes = Wishes(keep or 0, 0 if keep_for is None else milliseconds_in(keep_for), no_groups_ok)
    streams = wanted_streams(url, names, pattern)
    results: list[Trimmed] = []
    with progress_bar(console) as bar:
        task = bar.add_task("Trimming", total=len(streams), rows=0)

        def show(stream: str, removed: int) -> None:
            bar.update(task, rows=bar.tasks[task].fields["rows"] + removed)

        for stream in streams:
            results += trim(url, [stream], archive=archive, wishes=wishes, dry_run=dry_run, on_progress=show)
            bar.advance(task)
    for result in results:
        tell(console, result, dry_run)


def tell(console: Console, result: Trimmed, dry_run: bool) -> None:
    """What became of one stream, and who holds the rest."""
    did = "would be removed" if dry_run else "removed"
    about = "at least " if result.at_least else ""
    console.print(
        line((result.stream, "bold"), f": {about}{result.removed:,} entries {did}, {result.left:,} left"),
        soft_wrap=True,
    )
    first, *others = result.whys
    console.print(line(f"  stopped by: {first}"), soft_wrap=True)
    for other in others:
        console.print(line(f"  then        {other}"), soft_wrap=True)
