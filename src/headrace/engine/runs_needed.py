"""Which cold runs the request of a command needs, told from its arguments without reading the runs.

A command that changes something must not meet a run that cannot be read when it has changed a part already.
So its runs are loaded before it begins, in any case by the dispatcher, and if possible by parking.py.
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.stats import CommandRow, Stats
from headrace.errors import InvalidStreamId
from headrace.streams import cold_reads
from headrace.streams.cold_run import ColdRun
from headrace.streams.group import Group
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

READERS = frozenset({b"xrange", b"xrevrange", b"xread", b"xarrow", b"xcount", b"xlag", b"xinfo|stream"})
BY_ID = {b"xdel": 2, b"xdelex": 2, b"xackdel": 3, b"xclaim": 5}  # the first argument that may be an ID
# Kinds of CommandRow.cold_kind; 0: it reads no entries, or few and before it changes anything.
READS = cython.declare(cython.int, 1)
CHANGES = cython.declare(cython.int, 2)


def mark_rows(stats: Stats) -> None:
    """Set the kind of each command."""
    row: CommandRow
    for row in stats.rows:
        if row.command.name in READERS:
            row.cold_kind = READS
        elif row.command.name in BY_ID or row.command.name == b"xreadgroup":
            row.cold_kind = CHANGES


def load_runs(call: Call, row: CommandRow) -> None:
    """Load what missing_runs() returns. Raises DamagedColdRun."""
    for run in missing_runs(call, row):
        run.inner_nodes()


def id_of(word: bytes) -> StreamId | None:
    """Return the ID that a word is; None if it is none."""
    try:
        return stream_id.parse(word, 0)
    except InvalidStreamId:
        return None


def missing_runs(call: Call, row: CommandRow) -> list[ColdRun]:
    """Return the runs that a request which changes something will read, and that are not in the cache."""
    name, argv = row.command.name, call.argv
    if name == b"xreadgroup":
        return _missing_of_read(call)
    first = BY_ID.get(name)
    if first is None or len(argv) <= first:
        return []
    stream = call.keyspace.databases[call.session.database].values.find(argv[1])
    if not isinstance(stream, Stream) or stream.cold is None:
        return []
    found: dict[ColdRun, None] = {}
    for word in argv[first:]:
        entry = id_of(word)
        run = cold_reads.missing_of(stream, entry.ms, entry.seq) if entry is not None else None
        if run is not None:
            found[run] = None
    return list(found)


def _missing_of_read(call: Call) -> list[ColdRun]:
    """Return the runs with the next entries of an XREADGROUP."""
    argv = call.argv
    found: list[ColdRun] = []
    at = _streams_at(argv)
    values = call.keyspace.databases[call.session.database].values
    half = (len(argv) - at) // 2
    for key, start in zip(argv[at : at + half], argv[at + half :], strict=False):
        stream = values.find(key)
        if not isinstance(stream, Stream) or stream.cold is None:
            continue
        group: Group | None = stream.group(argv[2])
        if group is None:
            continue
        if start == b">":
            found += cold_reads.missing_after(stream, group.last_ms, group.last_seq, _count_of(argv, at))
        else:
            found += _missing_of_history(stream, group, argv[3], start)
    return found


def _streams_at(argv: list[bytes]) -> int:
    """Return the index of the first key of an XREADGROUP; the number of arguments if there is none."""
    if len(argv) >= 7 and argv[-3].upper() == b"STREAMS":  # one key: by far the most common
        return len(argv) - 2
    for at in range(4, len(argv)):
        if argv[at].upper() == b"STREAMS":
            return at + 1
    return len(argv)


def _count_of(argv: list[bytes], end: int) -> int:
    """Return the COUNT of an XREADGROUP whose keys begin at `end`; 0 if there is none."""
    for at in range(4, end - 1):
        if argv[at].upper() == b"COUNT" and argv[at + 1].isdigit():
            return int(argv[at + 1])
    return 0


def _missing_of_history(stream: Stream, group: Group, consumer: bytes, start: bytes) -> list[ColdRun]:
    """Return the run with the first pending entries of a consumer after an ID."""
    entry: StreamId | None = id_of(start)
    owner = group.consumer(consumer)
    if owner is None:
        return []
    slot = owner.owned.seek(entry.ms, entry.seq) if entry is not None else -1
    if slot < 0:
        return []
    run = cold_reads.missing_of(stream, group.pending.ms_of(slot), group.pending.seq_of(slot))
    return [] if run is None else [run]
