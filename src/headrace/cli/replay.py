"""`headrace replay`: entries of the past into a stream, at their own speed, faster, or flat out."""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from headrace.cli.drawing import Description, Rows
from headrace.cli.resume_hint import add_hint
from headrace.cli.streams import url_option
from headrace.cli.values import LocalPath
from headrace.client.stream_names import normalize_name
from headrace.console.rich_text import line
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.interrupts import defer_interrupts
from headrace.pipeline.replay import ReplayReport, replay
from headrace.pipeline.replay_pacer import ReplayPacer
from headrace.pipeline.replay_source import LAST_ID, ReplaySource, id_before, last_included_id
from headrace.spark.source.offsets import START, parse_id

FLAT_OUT = "max"


@click.command(
    "replay",
    epilog="""\b
Examples:
  headrace replay --stream flights --archive archive/flights --into flights-2013
  headrace replay --stream orders --into orders-test --speed 60 --from 2026-03-01 --to 2026-03-02
  headrace replay --stream orders --into orders --new-ids --from 1772323200000-0
""",
)
@click.option("--stream", required=True, help="The stream to replay.")
@click.option("--into", "target", required=True, help="The stream to replay it into.")
@click.option(
    "--archive",
    "directory",
    type=LocalPath(),
    help="Its archive: what is there is read from there, the rest from the server.",
)
@click.option("--archive-only", is_flag=True, help="Leave out what is not archived.")
@url_option
@click.option("--to-url", help="The server to replay to, if it is another one.")
@click.option(
    "--speed",
    default=FLAT_OUT,
    show_default=True,
    metavar="FACTOR",
    help="1 for the speed at which the entries came, 60 for a minute a second, max for flat out.",
)
@click.option("--from", "begin", metavar="ID|TIME", help="The first entry: its ID, or a time (UTC).")
@click.option(
    "--to", "end", metavar="ID|TIME", help="The last entry: its ID, or the time before which it is."
)
@click.option(
    "--keep-ids/--new-ids",
    default=None,
    help="Whether the entries get the IDs they had; so by default if there was no entry in --into yet.",
)
@click.option(
    "--restart", is_flag=True, help="Replay from the beginning, also what an earlier run has added."
)
def command(
    stream: str,
    target: str,
    directory: Path | None,
    archive_only: bool,
    url: str,
    to_url: str | None,
    speed: str,
    begin: str | None,
    end: str | None,
    keep_ids: bool | None,
    restart: bool,
) -> None:
    """Add the entries of a stream, or of its archive, to a stream again.

    Stopped or broken off, the same command goes on where it was: no entry is lost, none comes twice. A
    replay that is complete adds nothing when it is run again, unless --restart is given.
    """
    if archive_only and directory is None:
        raise UsageError("--archive-only needs an --archive")
    pacer = ReplayPacer(factor(speed))
    target = normalize_name(target)
    source = ReplaySource(normalize_name(stream), None if archive_only else url, directory)
    after, upto = id_before(begin) if begin else START, last_included_id(end) if end else LAST_ID
    if parse_id(after) >= parse_id(upto):
        raise UsageError(f"--from {begin or '0-0'} is not before --to {end}: no entry can be between them")
    console = Console(highlight=False)
    report = ReplayReport()

    def show(now: ReplayReport) -> None:
        nonlocal report
        report = now
        draw(bar, now)

    with defer_interrupts(), progress(console, target) as bar:
        try:
            report = replay(
                source,
                to_url or url,
                target,
                name=name_of(source, url, after, upto),
                after=after,
                upto=upto if end else None,
                keep_ids=keep_ids,
                pacer=pacer,
                restart=restart,
                on_progress=show,
            )
        except (HeadraceError, KeyboardInterrupt) as stop:
            if report.rows:
                hint = f"{report.rows:,} entries up to {report.last_id} are in; the same command goes on"
                add_hint(console, stop, hint)
            raise
    tell(console, report, target)


def factor(text: str) -> float | None:
    """What --speed says; None for flat out. UsageError if it is no positive number."""
    if text == FLAT_OUT:
        return None
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError(f"--speed {text}: expected a number above 0, such as 1 or 60, or {FLAT_OUT}")
    return found


def name_of(source: ReplaySource, url: str, after: str, upto: str) -> str:
    """A name by which the same replay is known again: what is replayed, not how fast."""
    archive = source.archive.resolve() if source.archive else ""
    what = "\0".join([source.stream, str(archive), url.rpartition("@")[2], after, upto])
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def progress(console: Console, target: str) -> Progress:
    """A bar that runs over the time in which the entries came."""
    bar = Progress(
        Description(),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        Rows(),
        TextColumn("{task.fields[at]}", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    bar.add_task(target, total=None, rows=0, at="")
    return bar


def draw(bar: Progress, now: ReplayReport) -> None:
    """Moves the bar to where the replay is."""
    [task] = bar.task_ids
    if not now.first_id:
        return
    first, last, upto = (parse_id(each)[0] for each in (now.first_id, now.last_id, now.upto))
    late = f"  {now.lag_seconds:,.1f} s behind" if now.lag_seconds >= 1 else ""
    bar.update(task, completed=last - first, total=max(upto - first, 1), rows=now.rows, at=clock(last) + late)


def clock(ms: int) -> str:
    """The time of an ID, for people."""
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return str(ms)


def tell(console: Console, report: ReplayReport, target: str) -> None:
    """Says what the replay did."""
    if report.complete:
        complete = f" is complete up to {report.upto}, nothing was added; --restart replays it again"
        console.print(line("The replay into ", (target, "bold"), complete), soft_wrap=True)
        if report.has_newer_entries:
            ms, seq = parse_id(report.upto)
            console.print(f"Newer entries are not part of it: --from {ms}-{seq + 1} replays them")
        return
    if report.target_was_deleted:
        console.print(
            line("Stream ", (target, "bold"), " is gone since an earlier run: began again"), soft_wrap=True
        )
    if report.resumed_after:
        console.print(f"Went on after {report.resumed_after}")
    rate = report.rows / max(report.seconds, 1e-9)
    kept = "with the IDs they had" if report.ids_kept else "with new IDs"
    ending = f" {kept}, {rate:,.0f} entries/s"
    added = line((f"{report.rows:,}", "bold"), " entries added to stream ", (target, "bold"), ending)
    console.print(added, soft_wrap=True)
    if report.rows:
        first, last = (clock(parse_id(each)[0]) for each in (report.first_id, report.last_id))
        console.print(f"They came from {first} to {last}")
