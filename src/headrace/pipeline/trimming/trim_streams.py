"""Trim streams without loss: remove only entries that all archives have, and all groups have acknowledged.

    1  find_trim_horizon    which entry must stay first, and what requires it (horizon)
    2  trim_step            the server removes the entries before it, atomically, if that is still true

Between the two a group may be created or set back, or an entry may be claimed again. WATCH detects none of
these, since they are not changes of the key. So the second step checks again, atomically:

    with scripts     a script reads the groups again, then trims, or reports that they have changed;
                     Headrace knows this script by its digest (commands/server/known_scripts.py)
    without          XTRIM … ACKED keeps what any group still needs; WATCH fails if the stream was deleted
                     and recreated (that is a change of the key), and also after any XADD

An interrupted trim has removed some of the removable entries, and no others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import redis

from headrace.archive.copy_detection import is_same_place
from headrace.archive.files import Archive, read_archive
from headrace.archive.location import ArchiveLocation, archive_location
from headrace.archive.verification import lost_files
from headrace.archive.watermark import Watermark, published_watermarks
from headrace.client.servers import servers_at
from headrace.client.stream_names import stream_key, stream_name
from headrace.client.url import without_password
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.trimming.horizon import PAGE_ENTRIES, RetentionPolicy, TrimHorizon, find_trim_horizon
from headrace.plurals import plural
from headrace.positions.entry_ids import START, EntryId, format_id, parse_id
from headrace.positions.position import Position
from headrace.positions.stream_state import as_text

# Entries that one step removes at most: the server executes nothing else during a step.
STEP_ENTRIES_MAX = 100_000

# How long to retry while other clients change the stream or its groups.
RETRY_SECONDS = 5.0

# The wait between attempts while the stream's slot moves from one node of a cluster to another.
SLOT_MOVE_WAIT_SECONDS = 0.1

# Where a dry run has to read entries to count them, it stops at this count.
COUNT_MAX = 100_000

# Parts of the errors of servers that run no scripts, or not this one for this user.
SCRIPTS_UNAVAILABLE_ERRORS = (
    "unknown command",
    "scripts need Lua",
    "Lua is not run here",
    "ACL failure in script",
)

# KEYS: the stream. ARGV: the first ID to keep, the last archived ID, `=` or `~`, and the LIMIT of `~`.
# Returns the number of removed entries, or -1 if the groups have changed: find the horizon again.
TRIM_SCRIPT = """
local function below(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  if am == bm then am, bm = as, bs end
  return #am < #bm or (#am == #bm and am < bm)
end
if #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) == 0 then return -1 end
for _, answer in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = {}
  for i = 1, #answer, 2 do group[answer[i]] = answer[i + 1] end
  if below(group['last-delivered-id'], ARGV[1]) then return -1 end
  local oldest = redis.call('XPENDING', KEYS[1], group['name'])[2]
  if oldest and below(oldest, ARGV[1]) then return -1 end
end
if ARGV[3] == '=' then return redis.call('XTRIM', KEYS[1], 'MINID', '=', ARGV[1]) end
return redis.call('XTRIM', KEYS[1], 'MINID', '~', ARGV[1], 'LIMIT', ARGV[4])
"""


@dataclass(frozen=True)
class TrimResult:
    """The result of trimming one stream.

    Attributes:
        stream: The name.
        removed: Entries removed; in a dry run, entries that would be removed.
        remaining: Entries left in the stream.
        reasons: Why the other entries stay; the first reason determines where trimming stopped.
        is_lower_bound: Whether `removed` is a lower bound: a dry run stopped counting.
    """

    stream: str
    removed: int
    remaining: int
    reasons: tuple[str, ...]
    is_lower_bound: bool = False


def trim_streams(
    url: str,
    streams: Iterable[str],
    *,
    archive: str | os.PathLike[str] | ArchiveLocation | None = None,
    retention: RetentionPolicy | None = None,
    dry_run: bool = False,
    on_progress: Callable[[str, int], None] = lambda stream, removed: None,
) -> list[TrimResult]:
    """Remove the entries that all archives of a stream have, and all groups have acknowledged.

    The archives are those whose watermarks the archive job has published on the server.

    Args:
        url: The server.
        streams: The streams' names; they are trimmed one after the other.
        archive: An archive whose last archived IDs are read from itself, and whose files are checked.
        retention: Entries to keep in addition; None for none.
        dry_run: Whether to only count the entries.
        on_progress: Called after each step with the stream and the number of entries removed by the step.

    Returns:
        A result for each stream, in the order given.

    Raises:
        UsageError: if a stream does not exist.
        HeadraceError: if the server is not reachable or rejects a command, or the archive lacks a file of
            entries that are still in a stream.
    """
    retention = retention or RetentionPolicy()
    contents = None if archive is None else read_archive(archive_location(archive))
    with servers_at(url) as servers:
        client = servers.client()
        results = []
        for stream in streams:
            watermarks = published_watermarks(client, stream)
            if contents is not None:
                own = archive_watermark(contents, stream)
                watermarks = [
                    own,
                    *(each for each in watermarks if not is_watermark_of_archive(each, contents)),
                ]
                check_archived_files(client, stream, contents)
            try:
                result = trim_stream(
                    client, stream_key(stream), watermarks, retention, dry_run, partial(on_progress, stream)
                )
            except redis.ResponseError as error:
                if "no such key" in str(error).lower():
                    raise UsageError(f"{without_password(url)}: there is no stream {stream!r}") from error
                raise HeadraceError(f"stream {stream!r}: the server rejected a command: {error}") from error
            results.append(replace(result, stream=stream))
        return results


def archive_watermark(contents: Archive, stream: str) -> Watermark:
    """Return the watermark of a stream according to the archive's own table, not the published one."""
    through = contents.archived_through.get(stream, START)
    position = contents.positions.get(stream, Position(through))
    return Watermark(position, contents.table_id, str(contents.location))


def is_watermark_of_archive(watermark: Watermark, contents: Archive) -> bool:
    """Return whether this archive published the watermark; an archive and its copy differ in location."""
    is_own = watermark.table_id == contents.table_id
    return is_own and (not watermark.location or is_same_place(watermark.location, contents.location))


def check_archived_files(client: Any, stream: str, contents: Archive) -> None:
    """Raise HeadraceError if the archive lacks a file of entries that are still in the stream."""
    entries = client.xrange(stream_key(stream), "-", "+", 1)
    if not entries:
        return
    first_ms = parse_id(as_text(entries[0][0]))[0]
    files = [
        file
        for file in contents.files
        if file.stream == stream and (file.last_ms is None or file.last_ms >= first_ms)
    ]
    if lost := lost_files(contents.location, files):
        raise HeadraceError(
            f"{contents.location} lacks {plural(len(lost), 'file')}, such as {lost[0]}: trimming the stream "
            f"{stream!r} would remove the only copy of its entries"
        )


def trim_stream(
    client: Any,
    key: str | bytes,
    watermarks: Sequence[Watermark],
    retention: RetentionPolicy,
    dry_run: bool = False,
    on_progress: Callable[[int], None] = lambda removed: None,
) -> TrimResult:
    """Trim one stream whose watermarks are known.

    Args:
        client: A client of redis-py.
        key: The stream's key.
        watermarks: Up to which position each archive has the stream.
        retention: Entries to keep in addition.
        dry_run: Whether to only count the entries.
        on_progress: Called after each step with the number of entries removed by it.

    Returns:
        The result. If other clients change the stream for over RETRY_SECONDS, its first reason says so.
    """
    stream = stream_name(key) if isinstance(key, bytes) else key
    removed = 0
    deadline = time.monotonic() + RETRY_SECONDS
    while True:
        horizon = find_trim_horizon(client, key, watermarks, retention)
        if dry_run or horizon.first_kept_id is None:
            count, is_lower_bound = (
                (0, False)
                if horizon.first_kept_id is None
                else capped_count_below(client, key, horizon.first_kept_id)
            )
            return TrimResult(
                stream, removed + count, horizon.length - count, horizon.reasons, is_lower_bound
            )
        exactly = False
        while True:
            removed_now = trim_step(client, key, horizon, exactly)
            if removed_now is None:
                break
            removed += removed_now
            on_progress(removed_now)
            deadline = time.monotonic() + RETRY_SECONDS
            if exactly:
                return TrimResult(stream, removed, int(client.xlen(key)), horizon.reasons)
            exactly = removed_now < STEP_ENTRIES_MAX // 2
        if is_trimmed(client, key, horizon):
            return TrimResult(stream, removed, int(client.xlen(key)), horizon.reasons)
        if time.monotonic() > deadline:
            busy = "the stream or its groups change too fast to be checked and trimmed atomically; try again"
            return TrimResult(stream, removed, horizon.length, (busy, *horizon.reasons))


def trim_step(client: Any, stream: str | bytes, horizon: TrimHorizon, exactly: bool) -> int | None:
    """Remove entries before the horizon: all if `exactly`, else whole nodes, at most STEP_ENTRIES_MAX.

    Returns:
        How many entries were removed; None if the stream or its groups have changed.

    Raises:
        HeadraceError: if the server supports neither EVAL for this user nor XTRIM with ACKED.
    """
    assert horizon.first_kept_id is not None and horizon.archived_through is not None
    limit, anchor = format_id(horizon.first_kept_id), format_id(horizon.archived_through)
    try:
        removed_now = client.eval(
            TRIM_SCRIPT, 1, stream, limit, anchor, "=" if exactly else "~", STEP_ENTRIES_MAX
        )
        return None if removed_now < 0 else int(removed_now)
    except redis.exceptions.NoPermissionError:
        pass
    except redis.ResponseError as error:
        if not any(words in str(error) for words in SCRIPTS_UNAVAILABLE_ERRORS):
            raise
    how = ("=", limit) if exactly else ("~", limit, "LIMIT", STEP_ENTRIES_MAX)
    with client.pipeline(transaction=True) as pipe:
        try:
            pipe.watch(stream)
            if not pipe.xrange(stream, anchor, anchor):
                return None
            pipe.multi()
            pipe.execute_command("XTRIM", stream, "MINID", *how, "ACKED")
            return int(pipe.execute()[0])
        except redis.WatchError:
            return None
        except redis.exceptions.AskError:  # the stream's slot is moving to another node
            time.sleep(SLOT_MOVE_WAIT_SECONDS)
            return None
        except redis.ResponseError as error:
            if "syntax error" not in str(error):
                raise
            raise HeadraceError(
                "trimming safely needs EVAL, which the server does not allow for this user, or XTRIM with "
                "ACKED, which it does not know: allow EVAL with ACL SETUSER"
            ) from error


def is_trimmed(client: Any, stream: str | bytes, horizon: TrimHorizon) -> bool:
    """Return whether no entry before the horizon is left."""
    assert horizon.first_kept_id is not None
    first = client.xrange(stream, "-", "+", 1)
    return not first or parse_id(as_text(first[0][0])) >= horizon.first_kept_id


def capped_count_below(client: Any, stream: str | bytes, limit: EntryId) -> tuple[int, bool]:
    """Return the number of entries before an ID, and whether it is only a lower bound."""
    if limit == (0, 0):
        return 0, False
    end = f"({format_id(limit)}"
    if not isinstance(client, redis.RedisCluster):  # no node of a cluster knows XCOUNT
        try:
            return int(client.execute_command("XCOUNT", stream, "-", end)), False
        except redis.ResponseError as error:
            if "unknown command" not in str(error).lower():
                raise
    begin, count = "-", 0
    while count < COUNT_MAX:
        page = client.xrange(stream, begin, end, PAGE_ENTRIES)
        count += len(page)
        if len(page) < PAGE_ENTRIES:
            return count, False
        begin = f"({as_text(page[-1][0])}"
    return count, True
