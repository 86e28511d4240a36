"""`headrace trim`: remove entries that are archived and acknowledged."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from headrace.cli.drawing import progress_bar
from headrace.cli.streams import url_option, wanted_streams
from headrace.cli.values import LocalPath
from headrace.console.rich_text import line
from headrace.pipeline.durations import parse_duration_ms
from headrace.pipeline.trim import TrimResult, trim
from headrace.pipeline.trim_horizon import RetentionPolicy
from headrace.plurals import plural


@click.command(
    "trim",
    epilog="""\b
Examples:
  headrace trim --stream orders --dry-run
  headrace trim --pattern 'orders\\..*' --keep-for 2h --archive archive/orders
""",
)
@click.option("--stream", "names", multiple=True, help="The stream to trim; repeat it for several.")
@click.option("--pattern", metavar="REGEX", help="All streams whose whole name matches.")
@url_option
@click.option(
    "--archive",
    type=LocalPath(existing_directory=True),
    help="Trim up to the end of this archive. Default: the watermark on the server.",
)
@click.option("--keep", type=click.IntRange(min=1), help="Keep at least this many entries.")
@click.option("--keep-for", metavar="TIME", help="Keep the entries of the last 2h, 30min, 7d.")
@click.option("--no-groups-ok", is_flag=True, help="Also trim streams without consumer groups.")
@click.option("--dry-run", is_flag=True, help="Only print what would be removed, and why the rest stays.")
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
    """Remove the entries that are archived and acknowledged by every consumer group.

    Prints for each stream why the other entries stay.
    """
    console = Console(highlight=False)
    retention = RetentionPolicy(
        keep or 0, 0 if keep_for is None else parse_duration_ms(keep_for), no_groups_ok
    )
    streams = wanted_streams(url, names, pattern)
    results: list[TrimResult] = []
    with progress_bar(console) as bar:
        task = bar.add_task("Trimming", total=len(streams), rows=0)

        def show(stream: str, removed: int) -> None:
            bar.update(task, rows=bar.tasks[task].fields["rows"] + removed)

        for stream in streams:
            results += trim(
                url, [stream], archive=archive, retention=retention, dry_run=dry_run, on_progress=show
            )
            bar.advance(task)
    for result in results:
        print_result(console, result, dry_run)


def print_result(console: Console, result: TrimResult, dry_run: bool) -> None:
    """Print how many entries of a stream were removed, and why the others stay."""
    did = "would be removed" if dry_run else "removed"
    about = "at least " if result.is_lower_bound else ""
    removed = plural(result.removed, "entry")
    console.print(
        line((result.stream, "bold"), f": {about}{removed} {did}, {result.remaining:,} left"), soft_wrap=True
    )
    first, *others = result.reasons
    console.print(line(f"  stopped by: {first}"), soft_wrap=True)
    for other in others:
        console.print(line(f"  then        {other}"), soft_wrap=True)
