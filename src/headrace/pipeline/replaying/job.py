"""The replay job: add the entries of a stream, or of its archive, to a stream again."""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from headrace.archive.location import archive_location
from headrace.client.stream_names import normalize_name
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.replaying.replay_entries import ReplayResult, replay_entries
from headrace.pipeline.replaying.source import MAX_ID, ReplaySource, id_before, last_included_id
from headrace.pipeline.shared.arguments import checked_positive, time_or_id_text
from headrace.pipeline.shared.interrupts import defer_interrupts
from headrace.pipeline.shared.pacing import ReplayPacer
from headrace.plurals import plural
from headrace.positions.entry_ids import START, parse_id
from headrace.spark.options import DEFAULT_URL


def replay(
    stream: str,
    *,
    into: str,
    url: str = DEFAULT_URL,
    to_url: str | None = None,
    archive: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    archive_only: bool = False,
    speed: float | None = None,
    start: str | datetime.datetime | None = None,
    end: str | datetime.datetime | None = None,
    keep_ids: bool | None = None,
    restart: bool = False,
    on_progress: Callable[[ReplayResult], None] = lambda progress: None,
) -> ReplayResult:
    """Add the entries of a stream, or of its archive, to another stream or to the same one.

    After an interruption the same call, or command, continues where it stopped: no entry is lost or added
    twice. Another stream, URL, archive, start or end makes it another replay. A complete replay adds nothing
    when it is run again, even if the source has newer entries. It needs neither Spark nor PySpark.

    Args:
        stream: Replay the entries of this stream.
        into: Add the entries to this stream.
        url: The server.
        to_url: Replay to this server; None for `url`.
        archive: Read archived entries from this archive, and the rest from the server.
        storage_options: The options of the archive's object store, such as `AWS_ENDPOINT_URL`.
        archive_only: Whether to replay only archived entries; then nothing is read from `url`.
        speed: A multiple of the original speed: 60 replays one minute of the stream per second. None for as
            fast as possible.
        start: Replay from this ID or time on (`--from`); a time without a zone is in UTC.
        end: Replay up to and including this ID, or before this time (`--to`); None for the entries that
            exist when the replay begins.
        keep_ids: Whether the entries keep their IDs. With None, a new replay keeps them only if `into` never
            had an entry, and a continued one does as before. To replay a stream into itself, pass False.
        restart: Whether to replay from the beginning, including what an earlier run has added.
        on_progress: Called at the beginning and after each transaction with the result so far.

    Returns:
        The result.

    Raises:
        UsageError: if `stream` does not exist, an argument is wrong, or IDs cannot be kept.
        DataLoss: if entries were trimmed before they were read, `stream` was recreated, or the archive was
            replaced.
        HeadraceError: if a server is not reachable or rejects entries, the archive cannot be read, or `into`
            was recreated since an earlier run. The text says how many entries were added.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when the entries that were sent are confirmed.
    """
    if archive_only and archive is None:
        raise UsageError("--archive-only needs an --archive")
    pacer = ReplayPacer(None if speed is None else checked_positive("--speed", speed))
    target = normalize_name(into)
    location = None if archive is None else archive_location(archive, storage_options)
    source = ReplaySource(normalize_name(stream), None if archive_only else url, location)
    after, upto = replayed_range(start, end)
    into_itself = target == source.stream and to_url in (None, url)
    if into_itself and location is None and keep_ids is None:
        raise UsageError(f"--into {target} is the stream itself: --new-ids adds its entries once more")
    with errors_with_continue_hint(on_progress) as show:
        return replay_entries(
            source, to_url or url, target, name=replay_name(source, url, after, upto), after=after,
            upto=None if end is None else upto, keep_ids=keep_ids, pacer=pacer, restart=restart,
            into_itself=into_itself, on_progress=show,
        )  # fmt: skip


def replayed_range(
    start: str | datetime.datetime | None, end: str | datetime.datetime | None
) -> tuple[str, str]:
    """Return the ID after which a replay begins, and the last one. UsageError if no ID is between them."""
    after = START if start is None else id_before(time_or_id_text(start))
    upto = MAX_ID if end is None else last_included_id(time_or_id_text(end))
    if parse_id(after) >= parse_id(upto):
        raise UsageError(f"--from {start or '0-0'} is not before --to {end}: no entry can be between them")
    return after, upto


@contextmanager
def errors_with_continue_hint(
    on_progress: Callable[[ReplayResult], None],
) -> Iterator[Callable[[ReplayResult], None]]:
    """Yield a progress callback. Append to an error how many entries were added, and how to continue."""
    progress = ReplayResult()

    def show(now: ReplayResult) -> None:
        nonlocal progress
        progress = now
        on_progress(now)

    try:
        with defer_interrupts():
            yield show
    except HeadraceError as error:
        if hint := continue_hint(progress):
            error.args = (f"{error}; {hint}",)
        raise


def replay_name(source: ReplaySource, url: str, after: str, upto: str) -> str:
    """Return a name that identifies the replay in later runs; it does not depend on the speed."""
    archive = source.location.uri if source.location else ""
    what = "\0".join([source.stream, str(archive), url.rpartition("@")[2], after, upto])
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def continue_hint(progress: ReplayResult) -> str:
    """Return what an interrupted replay has added, and how to continue; empty if it added nothing."""
    if not progress.added:
        return ""
    return f"{plural(progress.added, 'entry')} added, up to {progress.last_id}; the same command continues"
