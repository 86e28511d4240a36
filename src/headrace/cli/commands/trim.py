"""`headrace trim`: remove entries that are archived and acknowledged."""

from __future__ import annotations

import click
from rich.console import Console

from headrace.archive.location import ArchiveLocation
from headrace.archive.watermark_release import delete_watermarks
from headrace.cli.options.option_types import ArchivePath, optional_archive, quiet_option, storage_option
from headrace.cli.options.server_options import url_option
from headrace.cli.output.progress import progress_bar
from headrace.console.rich_text import line
from headrace.errors import UsageError
from headrace.pipeline.shared.durations import parse_duration_ms
from headrace.pipeline.shared.stream_selection import select_streams
from headrace.pipeline.trimming.horizon import RetentionPolicy
from headrace.pipeline.trimming.trim_streams import TrimResult, trim_streams
from headrace.plurals import plural


@click.command(
    "trim",
    epilog="""\b
Examples:
  headrace trim --stream orders --dry-run
  headrace trim --pattern 'orders\\..*' --keep-for 2h --archive archive/orders
  headrace trim --pattern '.*' --release /lake/old
""",
)
@click.option("--stream", "names", multiple=True, metavar="NAME", help="Trim this stream; may be repeated.")
@click.option("--pattern", metavar="REGEX", help="Trim all streams whose whole name matches.")
@url_option
@click.option(
    "--archive",
    type=ArchivePath(),
    metavar="PATH|URL",
    help="Read from this archive itself up to which ID it has the streams, and check its files.  [default: "
    "the IDs stored on the server]",
)
@storage_option
@click.option("--keep", metavar="N", type=click.IntRange(min=1), help="Keep at least the newest N entries.")
@click.option("--keep-for", metavar="TIME", help="Keep entries newer than this, such as 30min, 2h or 7d.")
@click.option("--no-groups-ok", is_flag=True, help="Also trim streams without consumer groups.")
@click.option("--dry-run", is_flag=True, help="Remove nothing: print what would be removed.")
@click.option(
    "--release",
    metavar="ARCHIVE",
    help="Trim nothing: delete what this archive, which is no longer used, has published about the streams. "
    "It is a path, a URL or an ID of headrace ls --archives.",
)
@quiet_option
def command(
    names: tuple[str, ...],
    pattern: str | None,
    url: str,
    archive: ArchiveLocation | None,
    storage_options: tuple[str, ...],
    keep: int | None,
    keep_for: str | None,
    no_groups_ok: bool,
    dry_run: bool,
    release: str | None,
    quiet: bool,
) -> None:
    """Remove the entries that all archives have and every consumer group has acknowledged.

    Prints for each stream why the other entries are kept.
    """
    console = Console(highlight=False, quiet=quiet)
    if release is not None:
        if archive is not None or storage_options or keep or keep_for or no_groups_ok or dry_run:
            raise UsageError("--release only takes --stream or --pattern: it trims nothing")
        streams = delete_watermarks(url, select_streams(url, names, pattern), release)
        console.print(
            line(f"{plural(len(streams), 'stream')} released: ", ", ".join(streams)), soft_wrap=True
        )
        return
    location = optional_archive(archive, storage_options)
    keep_ms = 0 if keep_for is None else parse_duration_ms(keep_for)
    streams = select_streams(url, names, pattern)
    with progress_bar(console) as bar:
        task = bar.add_task("Trimming", total=len(streams), rows=0)

        def show(stream: str, removed: int) -> None:
            rows = bar.tasks[task].fields["rows"] + removed
            bar.update(task, completed=streams.index(stream), rows=rows)

        results = trim_streams(
            url,
            streams,
            archive=location,
            retention=RetentionPolicy(keep or 0, keep_ms, no_groups_ok),
            dry_run=dry_run,
            on_progress=show,
        )
        bar.update(task, completed=len(streams))
    for result in results:
        print_result(console, result, dry_run)


def print_result(console: Console, result: TrimResult, dry_run: bool) -> None:
    """Print how many entries of a stream were removed, and why the others are kept."""
    verb = "would be removed" if dry_run else "removed"
    at_least = "at least " if result.is_lower_bound else ""
    text = f": {at_least}{plural(result.removed, 'entry')} {verb}, {result.remaining:,} left"
    console.print(line((result.stream, "bold"), text), soft_wrap=True)
    first, *others = result.reasons
    console.print(line(f"  stopped by: {first}"), soft_wrap=True)
    for other in others:
        console.print(line(f"  then        {other}"), soft_wrap=True)
