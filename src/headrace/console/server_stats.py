"""Statistics of a server at one moment: of the whole server, of each stream and of each group.

They are read by ordinary commands, so that they work with any Redis or Valkey server. Pipelines have a
bounded size, so that other clients are not blocked. A value that the server does not report is None, never 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.console.operation_stats import OperationStats
from headrace.errors import HeadraceError, UnexpectedReply

Request = Sequence[bytes | str | int]
SendPipeline = Callable[[list[Request]], list[object]]  # the replies in order, errors as exceptions

STREAMS_MAX = 1000  # per server; the others are only counted
STREAMS_PER_PIPELINE = 50
GROUPS_MAX = 1000  # per stream; the others are only counted
CONSUMERS_MAX = 100  # per group
SCAN_COUNT = 500


@dataclass
class ConsumerStats:
    """Statistics of one consumer; idle_ms is the time since it was last active."""

    name: bytes
    pending: int
    idle_ms: int


@dataclass
class GroupStats:
    """Statistics of one group.

    Attributes:
        lag: Entries not delivered yet; None if the server does not know.
        oldest_pending_idle_ms: Time since the first pending entry was delivered; None if there is none, or if
            its consumer released it (XNACK).
        lost_unread: Entries that were removed before the group read them; 0 if it is not counted.
        lost_pending: Entries that were deleted from the stream while they were pending.
    """

    name: bytes
    consumer_count: int
    pending: int
    last_id: bytes
    entries_read: int | None
    lag: int | None
    consumer_stats: list[ConsumerStats] = field(default_factory=list)
    oldest_pending_id: bytes | None = None
    oldest_pending_idle_ms: int | None = None
    lost_unread: int = 0
    lost_pending: int = 0


@dataclass
class StreamStats:
    """Statistics of one stream; memory_bytes is None unless requested.

    Cold entries are in files instead of in memory; cold_bytes is the memory that they would take.
    """

    database: int
    key: bytes
    length: int
    radix_nodes: int  # nodes of the radix tree
    radix_keys: int  # keys of the radix tree: listpack nodes
    last_id: bytes
    entries_added: int | None = None
    max_deleted_id: bytes | None = None
    first_entry_id: bytes | None = None
    last_entry_id: bytes | None = None
    memory_bytes: int | None = None
    group_count: int = 0
    groups: list[GroupStats] = field(default_factory=list)  # at most GROUPS_MAX
    cold_entries: int = 0
    cold_bytes: int = 0
    cold_files: int = 0


@dataclass
class RunningSnapshot:
    """A snapshot or rewrite that is being written; fraction_done is from 0 to 1."""

    job_name: str
    fraction_done: float


@dataclass
class ServerStats:
    """Statistics of a server: the fields of INFO, and its streams.

    left_out_streams is the number of streams beyond STREAMS_MAX, or a lower bound of it. operations is None
    unless it was read.
    """

    read_at: float  # time.monotonic()
    info: dict[str, str]
    streams: list[StreamStats] = field(default_factory=list)
    left_out_streams: int = 0
    operations: OperationStats | None = None

    def info_number(self, name: str) -> float | None:
        """Return a field of INFO as a number; None if it is missing or not a number."""
        try:
            return float(self.info[name])
        except (KeyError, ValueError):
            return None


def collect_stats(send: SendPipeline, *, consumers: bool = True, memory: bool = False) -> ServerStats:
    """Read all statistics. A stream that is deleted meanwhile is left out.

    Args:
        send: Sends requests in a pipeline and returns the replies.
        consumers: Whether to read the consumers of each group.
        memory: Whether to read the memory of each stream (MEMORY USAGE).

    Raises:
        HeadraceError: if the server rejects INFO or SCAN.
    """
    stats = ServerStats(time.monotonic(), read_info(send))
    for database in databases_with_keys(stats.info):
        found, more = scan_streams(send, database, STREAMS_MAX - len(stats.streams))
        stats.left_out_streams += more
        for start in range(0, len(found), STREAMS_PER_PIPELINE):
            stats.streams += read_streams(
                send, database, found[start : start + STREAMS_PER_PIPELINE], consumers, memory
            )
    return stats


def read_info(send: SendPipeline) -> dict[str, str]:
    """Return the fields of INFO everything by name. Raises HeadraceError if the server rejects it."""
    reply = send([["INFO", "everything"]])[0]
    if not isinstance(reply, bytes):
        raise HeadraceError(f"the server rejected INFO: {reply}")
    lines = reply.decode(errors="backslashreplace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def running_snapshot(info: Mapping[str, str]) -> RunningSnapshot | None:
    """Return what INFO says of a snapshot or rewrite that is being written; None if there is none."""
    names = (("rdb_bgsave_in_progress", "snapshot"), ("aof_rewrite_in_progress", "rewrite of the log"))
    what = next((what for name, what in names if info.get(name) == "1"), None)
    if what is None:
        return None
    try:
        return RunningSnapshot(what, min(float(info.get("current_fork_perc", "0")) / 100, 1.0))
    except ValueError:
        return RunningSnapshot(what, 0.0)


def databases_with_keys(info: dict[str, str]) -> list[int]:
    """Return the numbers of the databases that have keys."""
    return sorted(int(name[2:]) for name in info if name.startswith("db") and name[2:].isdigit())


def scan_streams(send: SendPipeline, database: int, limit: int) -> tuple[list[bytes], int]:
    """Return the sorted names of at most `limit` streams, and how many more were found.

    Raises:
        HeadraceError: if the server rejects SCAN.
    """
    names: set[bytes] = set()
    cursor: object = b"0"
    while len(names) <= limit:
        scan = ["SCAN", cursor, "COUNT", SCAN_COUNT, "TYPE", "stream"]
        reply = send([["SELECT", database], scan])[1]  # type: ignore[list-item]
        if not isinstance(reply, list):
            raise HeadraceError(f"the server rejected SCAN: {reply}")
        cursor, keys = reply
        names.update(keys)
        if cursor == b"0":
            break
    kept = sorted(names)[: max(limit, 0)]
    return kept, len(names) - len(kept)


def read_streams(
    send: SendPipeline, database: int, keys: list[bytes], consumers: bool, memory: bool
) -> list[StreamStats]:
    """Return the statistics of these streams of one database."""
    requests: list[Callable[[bytes], Request]] = [
        lambda key: ["XINFO", "STREAM", key],
        lambda key: ["XINFO", "GROUPS", key],
    ]
    if memory:
        requests.append(lambda key: ["MEMORY", "USAGE", key])
    replies = send([["SELECT", database], *(request(key) for key in keys for request in requests)])[1:]
    columns = [replies[n :: len(requests)] for n in range(len(requests))]
    streams = []
    for key, about, groups, *size in zip(keys, *columns, strict=True):
        if not isinstance(about, list) or not isinstance(groups, list):
            continue  # it was deleted, or replaced by another type
        stream = stream_stats(database, key, dict_from_flat(about))
        stream.group_count = len(groups)
        stream.groups = [group_stats(dict_from_flat(group)) for group in groups[:GROUPS_MAX]]
        stream.memory_bytes = size[0] if size and isinstance(size[0], int) else None
        streams.append(stream)
    add_group_details(send, database, streams, consumers)
    return streams


def add_group_details(send: SendPipeline, database: int, streams: list[StreamStats], consumers: bool) -> None:
    """Add the first pending entry, and optionally the consumers, to the groups of streams."""
    groups = [(stream.key, group) for stream in streams for group in stream.groups]
    if not groups:
        return
    requests: list[Request] = [["SELECT", database]]
    for key, group in groups:
        requests.append(["XPENDING", key, group.name, "-", "+", 1])
        if consumers:
            requests.append(["XINFO", "CONSUMERS", key, group.name])
    replies = iter(send(requests)[1:])
    for _, group in groups:
        first = next(replies)
        if isinstance(first, list) and first:
            group.oldest_pending_id, idle_ms = first[0][0], first[0][2]
            group.oldest_pending_idle_ms = None if idle_ms < 0 else idle_ms  # given back by XNACK
        members = next(replies) if consumers else None
        if isinstance(members, list):
            group.consumer_stats = list(consumer_stats(members))[:CONSUMERS_MAX]


def stream_stats(database: int, key: bytes, about: dict[str, object]) -> StreamStats:
    """Return the statistics in a reply of XINFO STREAM."""
    first, last = about.get("first-entry"), about.get("last-entry")
    return StreamStats(
        database,
        key,
        _int(about, "length"),
        _int(about, "radix-tree-nodes"),
        _int(about, "radix-tree-keys"),
        _bytes(about, "last-generated-id"),
        _maybe_int(about, "entries-added"),
        _bytes(about, "max-deleted-entry-id") or None,
        first[0] if isinstance(first, list) and first else _first_id_of_damaged(about),
        last[0] if isinstance(last, list) and last else None,
        cold_entries=_int(about, "cold-entries"),
        cold_bytes=_int(about, "cold-bytes"),
        cold_files=_int(about, "cold-files"),
    )


def _first_id_of_damaged(about: dict[str, object]) -> bytes | None:
    """Return the ID of a first entry that cannot be read, because its cold file is damaged."""
    return _bytes(about, "recorded-first-entry-id") or None if "cold-error" in about else None


def group_stats(about: dict[str, object]) -> GroupStats:
    """Return the statistics in an element of a reply of XINFO GROUPS."""
    return GroupStats(
        _bytes(about, "name"),
        _int(about, "consumers"),
        _int(about, "pending"),
        _bytes(about, "last-delivered-id"),
        _maybe_int(about, "entries-read"),
        _maybe_int(about, "lag"),
        lost_unread=_int(about, "lost-unread"),
        lost_pending=_int(about, "lost-pending"),
    )


def consumer_stats(members: list[object]) -> Iterator[ConsumerStats]:
    """Return the statistics in a reply of XINFO CONSUMERS."""
    for member in members:
        about = dict_from_flat(member)
        yield ConsumerStats(_bytes(about, "name"), _int(about, "pending"), _int(about, "idle"))


def dict_from_flat(flat: object) -> dict[str, object]:
    """Return a flat list of names and values as a dictionary. Raises UnexpectedReply for anything else."""
    if not isinstance(flat, list) or len(flat) % 2 or not all(isinstance(name, bytes) for name in flat[::2]):
        raise UnexpectedReply(f"{flat!r} is not a list of names and values: is it a Redis server?")
    return {name.decode(errors="replace"): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _int(about: dict[str, object], name: str) -> int:
    return _maybe_int(about, name) or 0


def _maybe_int(about: dict[str, object], name: str) -> int | None:
    value = about.get(name)
    return value if isinstance(value, int) else None


def _bytes(about: dict[str, object], name: str) -> bytes:
    value = about.get(name)
    return value if isinstance(value, bytes) else b""
