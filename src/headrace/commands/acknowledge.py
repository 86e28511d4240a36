"""A consumer is done with pending entries.

XACK key group id [id …]
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.streams.group import Group
from headrace.streams.pending import Pending
from headrace.streams.stream import Stream
from headrace.structures import streamid
from headrace.structures.streamid import StreamId


@cython.ccall
def group_or_none(call: Call) -> Group | None:
    """The group of argv[2] of the stream of argv[1]; None when one of them is not there."""
    argv: list[bytes] = call.argv
    stream: Stream | None = call.database.stream(argv[1])
    return None if stream is None else stream.group(argv[2])


def run_ack(call: Call) -> None:
    """XACK: all IDs are read before the first is acknowledged, so a bad one means that none is."""
    group: Group | None = group_or_none(call)
    if group is None:
        call.answer.integer(0)
        return
    argv: list[bytes] = call.argv
    pending: Pending = group.pending
    acknowledged: cython.longlong = 0
    slot: cython.Py_ssize_t
    at: cython.Py_ssize_t
    wanted: StreamId = streamid.parse(argv[3], 0)
    ids: list[StreamId] = [wanted]
    for at in range(4, len(argv)):
        ids.append(streamid.parse(argv[at], 0))
    for wanted in ids:
        slot = pending.find(wanted.ms, wanted.seq)
        if slot >= 0:
            pending.remove(slot)
            acknowledged += 1
    if acknowledged > 0:
        call.keyspace.changes += acknowledged
        if call.recording:
            call.record_verbatim()
    call.answer.integer(acknowledged)


COMMANDS = [
    Command(
        "xack",
        -4,
        run_ack,
        "write fast",
        keys=(1, 1, 1),
        group="stream",
        since="5.0.0",
        summary="Acknowledges entries: they are no longer pending in the group.",
        complexity="O(log n) for each ID, for n pending entries",
        syntax="key group id [id ...]",
    ),
]
