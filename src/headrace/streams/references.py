"""Which groups still hold an entry, for the commands that delete by a policy.

KEEPREF   delete, and leave what is pending: it then points to nothing
DELREF    delete, and let no group have it pending any longer
ACKED     delete only what no group holds: all have been given it, and none has it pending
"""

from __future__ import annotations

import cython

from headrace.streams.group import Group
from headrace.streams.pending import Pending
from headrace.streams.stream import Stream
from headrace.structures import streamid

KEEPREF = cython.declare(cython.int, 0)
DELREF = cython.declare(cython.int, 1)
ACKED = cython.declare(cython.int, 2)


@cython.ccall
@cython.exceptval(-1, check=False)
def referenced(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
    """Whether a group has not yet read ms-seq, or has it pending. The entry need not exist."""
    group: Group
    for group in stream.groups():
        if streamid.before(group.last_ms, group.last_seq, ms, seq) or group.pending.find(ms, seq) >= 0:
            return True
    return False


@cython.ccall
def drop_references(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
    """Let no group have ms-seq pending; returns how many had."""
    dropped: cython.Py_ssize_t = 0
    group: Group
    pending: Pending
    slot: cython.Py_ssize_t
    for group in stream.groups():
        pending = group.pending
        slot = pending.find(ms, seq)
        if slot >= 0:
            pending.remove(slot)
            dropped += 1
    return dropped
