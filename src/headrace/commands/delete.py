"""Deleting single entries.

XDEL key id [id …]
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.streams.stream import Stream
from headrace.structures import streamid
from headrace.structures.streamid import StreamId


def run(call: Call) -> None:
    """Delete entries: all IDs are read before the first is deleted, so a bad one means that none is."""
    argv: list[bytes] = call.argv
    key: bytes = argv[1]
    stream: Stream | None = call.database.stream(key)
    if stream is None:
        call.answer.integer(0)
        return
    ids: list[StreamId] = [streamid.parse(word, 0) for word in argv[2:]]
    deleted: cython.longlong = 0
    wanted: StreamId
    for wanted in ids:
        if stream.delete(wanted.ms, wanted.seq):
            deleted += 1
    if deleted > 0:
        if call.recording:
            call.record_verbatim()
        call.database.touched(key)
    call.answer.integer(deleted)


COMMANDS = [
    Command(
        "xdel",
        -3,
        run,
        "write fast",
        keys=(1, 1, 1),
        group="stream",
        since="5.0.0",
        summary="Deletes single entries of a stream by their IDs.",
        complexity="O(1) for each ID, however long the stream is",
        syntax="key id [id ...]",
    ),
]
