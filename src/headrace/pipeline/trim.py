"""Trimming that loses nothing: only entries go that are archived and that every group has acknowledged.

    look     who holds the stream, and from which entry on (pipeline.trim_horizon)
    step     the server removes what lies below, if that still holds, in one go

Between the two a group may be made, or set back, or an entry claimed anew, and WATCH notices none of these:
they do not count as changes of the key. So the step asks again where nothing comes in between:

    with scripts     one looks at the groups once more, then trims, or says that things have changed;
                     Headrace runs no Lua, but knows this one by its digest (commands/server/scripts.py)
    without          XTRIM … ACKED spares what any group still needs; WATCH sees to it that the stream is the
                     one looked at (its being deleted is a change of the key), and so does any XADD

Whoever is interrupted in between has removed some of what may go, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import redis

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.trim_horizon import PAGE, Floor, Wishes, look
from headrace.pipeline.watermark import published_position
from headrace.server_url import explain_connection_errors, without_password
from headrace.spark.archive.files import look as look_at_archive
from headrace.spark.archive.local_paths import local_path
from headrace.spark.servers import Servers
from headrace.spark.source.offsets import START, Id, format_id, parse_id
from headrace.spark.source.positions import Position
from headrace.spark.source.stream_state import text
from headrace.spark.stream_names import key, name_of

# Entries that one step removes at most: a server does nothing else meanwhile.
STEP = 100_000

# How long to try again while others change what was looked at.
PATIENCE_SECONDS = 5.0

# Between looks at a stream that moves from one node of a cluster to another.
MOVING_SECONDS = 0.1

# A dry run counts no further where it has to read entries to count them.
COUNT_MOST = 100_000

# What a server says that runs no scripts.
NO_SCRIPTS = ("unknown command", "Lua is not run here")

# KEYS: the stream. ARGV: the floor, the last archived entry, and how XTRIM is to do it. -1: look again.
SCRIPT = """
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
class Trimmed:
    """What became of one stream. `whys`: who holds the rest, beginning with who made it stop where it did.

    removed: entries, or of a dry run those that would go; at_least: it may be more than that.
    """

    stream: str
    removed: int
    left: int
    whys: tuple[str, ...]
    at_least: bool = False


def trim(
    url: str,
    streams: Iterable[str],
    *,
    archive: Path | None = None,
    wishes: Wishes | None = None,
    dry_run: bool = False,
    on_progress: Callable[[str, int], None] = lambda stream, removed: None,
) -> list[Trimmed]:
    """Removes what is archived and acknowledged by every group, stream by stream; says why it stopped there.

    What is archived: by the watermarks in the server, or by an archive of one's choice. on_progress hears of
    each step's entries. HeadraceError if the server refuses; UsageError if a stream does not exist.
    """
    wishes = wishes or Wishes()
    seen = None if archive is None else look_at_archive(local_path(archive))
    with closing(Servers(url, patience=0)) as servers, explain_connection_errors(url):
        client = servers.client()
        done = []
        for stream in streams:
            if seen is None:
                position = published_position(client, stream)
            else:
                position = seen.positions.get(stream, Position(seen.seams.get(stream, START)))
            is_archived = position is not None and position.id != START
            mark = parse_id(position.id) if position and is_archived else None
            try:
                one = trim_stream(
                    client,
                    key(stream),
                    mark,
                    wishes,
                    dry_run,
                    partial(on_progress, stream),
                    position if is_archived else None,
                )
            except redis.ResponseError as error:
                if "no such key" in str(error).lower():
                    raise UsageError(f"{without_password(url)}: there is no stream {stream!r}") from error
                raise HeadraceError(f"stream {stream!r}: the server refused: {error}") from error
            done.append(replace(one, stream=stream))
        return done


def trim_stream(
    client: Any,
    key: str | bytes,
    archived: Id | None,
    wishes: Wishes,
    dry_run: bool = False,
    on_progress: Callable[[int], None] = lambda removed: None,
    position: Position | None = None,
) -> Trimmed:
    """trim() for one stream, on a client of redis-py's, where the last archived ID is known.

    position: that ID with what identifies the stream that was archived, if that is known.
    """
    stream = name_of(key) if isinstance(key, bytes) else key
    removed = 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        floor = look(client, key, archived, wishes, position)
        if dry_run or floor.id is None:
            count, at_least = (0, False) if floor.id is None else count_below(client, key, floor.id)
            return Trimmed(stream, removed + count, floor.length - count, floor.whys, at_least)
        exactly = False
        while True:
            went = step(client, key, floor, exactly)
            if went is None:
                break
            removed += went
            on_progress(went)
            deadline = time.monotonic() + PATIENCE_SECONDS
            if exactly:
                return Trimmed(stream, removed, int(client.xlen(key)), floor.whys)
            exactly = went < STEP // 2
        if passed_by(client, key, floor):
            return Trimmed(stream, removed, int(client.xlen(key)), floor.whys)
        if time.monotonic() > deadline:
            busy = "it changes too fast to be looked at and trimmed in one go; try again"
            return Trimmed(stream, removed, floor.length, (busy, *floor.whys))


def step(client: Any, stream: str | bytes, floor: Floor, exactly: bool) -> int | None:
    """Removes entries below the floor, at most STEP unless exactly; None if it does not hold any more."""
    assert floor.id is not None and floor.archived is not None
    limit, anchor = format_id(floor.id), format_id(floor.archived)
    try:
        went = client.eval(SCRIPT, 1, stream, limit, anchor, "=" if exactly else "~", STEP)
        return None if went < 0 else int(went)
    except redis.exceptions.NoPermissionError:
        pass
    except redis.ResponseError as error:
        if not any(words in str(error) for words in NO_SCRIPTS):
            raise
    how = ("=", limit) if exactly else ("~", limit, "LIMIT", STEP)
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
        except redis.exceptions.AskError:  # the stream moves to another node: not while it does
            time.sleep(MOVING_SECONDS)
            return None
        except redis.ResponseError as error:
            if "syntax error" not in str(error):
                raise
            raise HeadraceError(
                "the server runs no scripts for this user (EVAL), and its XTRIM does not know ACKED: one of "
                "both is needed to trim safely"
            ) from error


def passed_by(client: Any, stream: str | bytes, floor: Floor) -> bool:
    """Whether all below the floor is gone already, so that there is nothing to be done."""
    assert floor.id is not None
    first = client.xrange(stream, "-", "+", 1)
    return not first or parse_id(text(first[0][0])) >= floor.id


def count_below(client: Any, stream: str | bytes, limit: Id) -> tuple[int, bool]:
    """How many entries lie below the ID, and whether it may be more than that."""
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
    while count < COUNT_MOST:
        page = client.xrange(stream, begin, end, PAGE)
        count += len(page)
        if len(page) < PAGE:
            return count, False
        begin = f"({text(page[-1][0])}"
    return count, True
