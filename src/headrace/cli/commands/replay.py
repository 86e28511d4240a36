"""`headrace replay`: add old entries to a stream, at original speed, faster, or as fast as possible."""

from __future__ import annotations

import datetime

import click
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Column

from headrace.archive.location import ArchiveLocation
from headrace.cli.options.option_types import ArchivePath, optional_archive, storage_option
from headrace.cli.options.server_options import url_option
from headrace.cli.output.progress import progress_bar
from headrace.client.stream_names import normalize_name
from headrace.console.rich_text import line
from headrace.errors import UsageError
from headrace.pipeline.replaying.job import continue_hint, replay
from headrace.pipeline.replaying.replay_entries import ReplayResult
from headrace.plurals import plural
from headrace.positions.entry_ids import format_id, next_id, parse_id

MAX_SPEED_TEXT = "max"


@click.command(
    "replay",
    epilog="""\b
Examples:
  headrace replay --stream flights --archive archive/flights --into flights-2013
  headrace replay --stream orders --into orders-test --speed 60 --from 2026-03-01 --to 2026-03-02
  headrace replay --stream orders --into orders --new-ids --from 1772323200000-0
""",
)
@click.option("--stream", required=True, metavar="NAME", help="Replay the entries of this stream.")
@click.option("--into", "target", required=True, metavar="NAME", help="Add the entries to this stream.")
@click.option(
    "--archive",
    "directory",
    type=ArchivePath(),
    metavar="PATH|URL",
    help="Read archived entries from this archive, and the rest from the server.",
)
@storage_option
@click.option("--archive-only", is_flag=True, help="Leave out entries that are not archived.")
@url_option
@click.option("--to-url", metavar="URL", help="Replay to this server.  [default: --url]")
@click.option(
    "--speed",
    default=MAX_SPEED_TEXT,
    show_default=True,
    metavar="FACTOR",
    help="Replay at this speed: 1 is the original speed, 60 a minute per second, max as fast as possible.",
)
@click.option("--from", "begin", metavar="ID|TIME", help="Replay from this ID or time (UTC) on.")
@click.option(
    "--to", "end", metavar="ID|TIME", help="Replay up to and including this ID, or before this time (UTC)."
)
@click.option(
    "--keep-ids/--new-ids",
    default=None,
    help="Keep the original IDs, or generate new ones.  [default: keep them if --into never had an entry]",
)
@click.option(
    "--restart", is_flag=True, help="Replay from the beginning, including what an earlier run has added."
)
def command(
    stream: str,
    target: str,
    directory: ArchiveLocation | None,
    storage_options: tuple[str, ...],
    archive_only: bool,
    url: str,
    to_url: str | None,
    speed: str,
    begin: str | None,
    end: str | None,
    keep_ids: bool | None,
    restart: bool,
) -> None:
    """Add the entries of a stream, or of its archive, to another stream or to the same one.

    After an interruption the same command continues where it stopped: no entry is lost or added twice. A
    complete replay adds nothing when it is run again, unless --restart is given.
    """
    location = optional_archive(directory, storage_options)
    console = Console(highlight=False)
    progress = ReplayResult()

    def show(now: ReplayResult) -> None:
        nonlocal progress
        progress = now
        update_bar(bar, now)

    position = TextColumn("{task.fields[at]}", table_column=Column(no_wrap=True))
    with progress_bar(console, position) as bar:
        bar.add_task(target, total=None, rows=0, at="")
        try:
            result = replay(
                stream,
                into=target,
                url=url,
                to_url=to_url,
                archive=None if location is None else location.uri,
                storage_options=None if location is None else dict(location.options),
                archive_only=archive_only,
                speed=parse_speed(speed),
                start=begin,
                end=end,
                keep_ids=keep_ids,
                restart=restart,
                on_progress=show,
            )
        except KeyboardInterrupt:
            if hint := continue_hint(progress):
                console.print(line(hint), soft_wrap=True)
            raise
    print_result(console, result, normalize_name(target))


def parse_speed(text: str) -> float | None:
    """Return the factor of --speed; None for no limit. UsageError if it is not a positive number."""
    if text == MAX_SPEED_TEXT:
        return None
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError(f"--speed {text}: expected a number above 0, such as 1 or 60, or {MAX_SPEED_TEXT}")
    return found


def update_bar(bar: Progress, now: ReplayResult) -> None:
    """Show the position of the replay in the time span of the entries."""
    [task] = bar.task_ids
    if not now.first_id:
        return
    first, last, upto = (parse_id(each)[0] for each in (now.first_id, now.last_id, now.upto))
    late = f"  {now.lag_seconds:,.1f} s behind" if now.lag_seconds >= 1 else ""
    at = format_time(last) + late
    bar.update(task, completed=last - first, total=max(upto - first, 1), rows=now.added, at=at)


def format_time(ms: int) -> str:
    """Return the time of an ID in UTC; its milliseconds if it is outside the calendar."""
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return str(ms)


def print_result(console: Console, result: ReplayResult, target: str) -> None:
    """Print what the replay did."""
    if result.was_complete:
        complete = f" is complete up to {result.upto}, nothing was added; --restart replays it again"
        console.print(line("The replay into ", (target, "bold"), complete), soft_wrap=True)
        if result.has_newer_entries:
            after = format_id(next_id(parse_id(result.upto)))
            console.print(f"Newer entries are not part of it: --from {after} replays them")
        return
    if result.target_was_deleted:
        deleted = " was deleted since an earlier run; started again"
        console.print(line("Stream ", (target, "bold"), deleted), soft_wrap=True)
    if result.resumed_after:
        console.print(f"Continued after {result.resumed_after}")
    rate = result.added / max(result.seconds, 1e-9)
    kept = "with the IDs they had" if result.ids_kept else "with new IDs"
    ending = f" {kept}, {rate:,.0f} entries/s"
    added = (plural(result.added, "entry"), "bold")
    console.print(line(added, " added to stream ", (target, "bold"), ending), soft_wrap=True)
    if result.added:
        first, last = (format_time(parse_id(each)[0]) for each in (result.first_id, result.last_id))
        console.print(f"Their times are {first} to {last}")
