"""XCOUNT: the exact number of entries between two IDs. Redis does not have this command.

XCOUNT key start end
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.commands.call import Call
from headrace.commands.spec import SINCE_HEADRACE, Command
from headrace.streams import entry_counts
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId


def run_count(call: Call) -> None:
    """XCOUNT: reply with the number of entries between two IDs; 0 without a stream."""
    first: StreamId = stream_id.parse_start(call.argv[2])
    last: StreamId = stream_id.parse_end(call.argv[3])
    stream: Stream | None = call.database.stream(call.argv[1])
    n: cython.ulonglong = 0
    if stream is not None:
        n = entry_counts.count_between(stream, first.ms, first.seq, last.ms, last.seq)
    call.reply.integer(mem.as_signed(n))


COMMANDS = [
    Command(
        "xcount",
        4,
        run_count,
        "readonly fast",
        keys="1: RO",
        group="stream",
        since=SINCE_HEADRACE,
        summary="Counts the entries of a stream between two IDs, without reading them.",
        complexity="O(log n) for a stream of n entries",
        syntax="key start end",
    ),
]
