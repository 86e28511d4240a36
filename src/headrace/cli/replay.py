"""`headrace replay`: add old entries to a stream, at original speed, faster, or as fast as possible."""

from __future__ import annotations

import datetime
import hashlib

import click
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Column

from headrace.archive.location import ArchiveLocation
from headrace.cli.option_types import ArchivePath, storage_option, with_storage_options
from headrace.cli.output import add_hint
from headrace.cli.progress import progress_bar
from headrace.cli.streams import url_option
from headrace.client.stream_names import normalize_name
from headrace.console.rich_text import line
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.interrupts import defer_interrupts
from headrace.pipeline.replay import ReplayReport, replay
from headrace.pipeline.replay_pacer import ReplayPacer
from headrace.pipeline.replay_source import LAST_ID, ReplaySource, id_before, last_included_id
from headrace.plurals import plural
from headrace.positions.entry_ids import START, parse_id

MAX_SPEED = "max"


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
    default=MAX_SPEED,
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
    if archive_only and directory is None:
        raise UsageError("--archive-only needs an --archive")
    pacer = ReplayPacer(parse_speed(speed))
    target = normalize_name(target)
    archive = None if directory is None else with_storage_options(directory, storage_options)
    source = ReplaySource(normalize_name(stream), None if archive_only else url, archive)
    after, upto = id_before(begin) if begin else START, last_included_id(end) if end else LAST_ID
    if parse_id(after) >= parse_id(upto):
        raise UsageError(f"--from {begin or '0-0'} is not before --to {end}: no entry can be between them")
    into_itself = target == source.stream and to_url in (None, url)
    if into_itself and archive is None and keep_ids is None:
        raise UsageError(f"--into {target} is the stream itself: --new-ids adds its entries once more")
    console = Console(highlight=False)
    report = ReplayReport()

    def show(now: ReplayReport) -> None:
        nonlocal report
        report = now
        update_bar(bar, now)

    position = TextColumn("{task.fields[at]}", table_column=Column(no_wrap=True))
    with defer_interrupts(), progress_bar(console, position) as bar:
        bar.add_task(target, total=None, rows=0, at="")
        try:
            report = replay(
                source,
                to_url or url,
                target,
                name=replay_name(source, url, after, upto),
                after=after,
                upto=upto if end else None,
                keep_ids=keep_ids,
                pacer=pacer,
                restart=restart,
                into_itself=into_itself,
                on_progress=show,
            )
        except (HeadraceError, KeyboardInterrupt) as stop:
            if report.rows:
                added = f"{plural(report.rows, 'entry')} added, up to {report.last_id}"
                add_hint(console, stop, f"{added}; the same command continues")
            raise
    print_report(console, report, target)


def parse_speed(text: str) -> float | None:
    """Return the factor of --speed; None for no limit. UsageError if it is not a positive number."""
    if text == MAX_SPEED:
        return None
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError(f"--speed {text}: expected a number above 0, such as 1 or 60, or {MAX_SPEED}")
    return found


def replay_name(source: ReplaySource, url: str, after: str, upto: str) -> str:
    """Return a name that identifies the replay in later runs; it does not depend on the speed."""
    archive = source.location.uri if source.location else ""
    what = "\0".join([source.stream, str(archive), url.rpartition("@")[2], after, upto])
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def update_bar(bar: Progress, now: ReplayReport) -> None:
    """Show the position of the replay in the time span of the entries."""
    [task] = bar.task_ids
    if not now.first_id:
        return
    first, last, upto = (parse_id(each)[0] for each in (now.first_id, now.last_id, now.upto))
    late = f"  {now.lag_seconds:,.1f} s behind" if now.lag_seconds >= 1 else ""
    at = format_time(last) + late
    bar.update(task, completed=last - first, total=max(upto - first, 1), rows=now.rows, at=at)


def format_time(ms: int) -> str:
    """Return the time of an ID in UTC; its milliseconds if it is outside the calendar."""
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return str(ms)


def print_report(console: Console, report: ReplayReport, target: str) -> None:
    """Print what the replay did."""
    if report.complete:
        complete = f" is complete up to {report.upto}, nothing was added; --restart replays it again"
        console.print(line("The replay into ", (target, "bold"), complete), soft_wrap=True)
        if report.has_newer_entries:
            ms, seq = parse_id(report.upto)
            console.print(f"Newer entries are not part of it: --from {ms}-{seq + 1} replays them")
        return
    if report.target_was_deleted:
        deleted = " was deleted since an earlier run; started again"
        console.print(line("Stream ", (target, "bold"), deleted), soft_wrap=True)
    if report.resumed_after:
        console.print(f"Continued after {report.resumed_after}")
    rate = report.rows / max(report.seconds, 1e-9)
    kept = "with the IDs they had" if report.ids_kept else "with new IDs"
    ending = f" {kept}, {rate:,.0f} entries/s"
    added = (plural(report.rows, "entry"), "bold")
    console.print(line(added, " added to stream ", (target, "bold"), ending), soft_wrap=True)
    if report.rows:
        first, last = (format_time(parse_id(each)[0]) for each in (report.first_id, report.last_id))
        console.print(f"Their times are {first} to {last}")
