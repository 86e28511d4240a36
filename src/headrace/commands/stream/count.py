"""XCOUNT and XLAG: exact and fast counts. Redis does not have these commands.

XCOUNT key start end
XLAG key group
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.commands.call import Call
from headrace.commands.group import members
from headrace.commands.spec import Command
from headrace.streams import entry_counts
from headrace.streams.group import Group
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

HEADRACE_VERSION = "headrace 0.1.0"  # given as `since` of the commands that Redis does not have


def run_count(call: Call) -> None:
    """XCOUNT: reply with the number of entries between two IDs; 0 without a stream."""
    first: StreamId = stream_id.parse_start(call.argv[2])
    last: StreamId = stream_id.parse_end(call.argv[3])
    stream: Stream | None = call.database.stream(call.argv[1])
    n: cython.ulonglong = 0
    if stream is not None:
        n = entry_counts.count_between(stream, first.ms, first.seq, last.ms, last.seq)
    call.reply.integer(mem.as_signed(n))


def run_lag(call: Call) -> None:
    """XLAG: reply with the number of entries after the last one that the group was given."""
    stream: Stream = members.stream_of_group(call)
    group: Group | None = stream.group(call.argv[2])
    assert group is not None
    call.reply.integer(mem.as_signed(entry_counts.undelivered_count(stream, group)))


COMMANDS = [
    Command(
        "xcount",
        4,
        run_count,
        "readonly fast",
        keys="1: RO",
        group="stream",
        since=HEADRACE_VERSION,
        summary="Counts the entries of a stream between two IDs, without reading them.",
        complexity="O(log n) for a stream of n entries",
        syntax="key start end",
    ),
    Command(
        "xlag",
        3,
        run_lag,
        "readonly fast",
        keys="1: RO",
        group="stream",
        since=HEADRACE_VERSION,
        summary="Counts the entries not yet delivered to a group; never null, unlike XINFO's lag.",
        complexity="O(log n) for a stream of n entries",
        syntax="key group",
    ),
]
