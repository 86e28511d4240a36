"""The effects of a read by a group: an XCLAIM for each run of entries with the same owner, time and count."""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.group import members
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.structures import stream_id

# In one effect: a replica applies each in one step.
IDS_PER_EFFECT_MAX = cython.declare(cython.Py_ssize_t, 1000)


@cython.final
@cython.freelist(8)
@cython.cclass
class ClaimEffects:
    """Collects entries with the same owner, time and count, and records one XCLAIM for them.

    Call flush() at the end, and before recording an effect that must follow the XCLAIM.
    """

    call: Call
    key: bytes
    group: Group
    owner: Consumer | None
    time_ms: cython.longlong
    deliveries: cython.longlong
    group_last_id: bytes
    ids: list[bytes]

    def __init__(self, call: Call, key: bytes, group: Group) -> None:
        self.call = call
        self.key = key
        self.group = group
        self.owner = None
        self.time_ms = 0
        self.deliveries = 0
        self.group_last_id = b""
        self.ids = []

    @cython.ccall
    def add(self, slot: cython.Py_ssize_t, last: bytes) -> cython.void:
        """Add the state of a pending entry; `last` is the group's last ID, or empty to leave it out."""
        pending: PendingEntries = self.group.pending
        owner: Consumer | None = pending.owner_of(slot)
        time_ms: cython.longlong = pending.delivery_time_of(slot)
        deliveries: cython.longlong = pending.delivery_count_of(slot)
        if (
            owner is not self.owner
            or time_ms != self.time_ms
            or deliveries != self.deliveries
            or len(self.ids) == IDS_PER_EFFECT_MAX
        ):
            self.flush()
            self.owner = owner
            self.time_ms = time_ms
            self.deliveries = deliveries
        self.group_last_id = last
        self.ids.append(stream_id.text_of(pending.ms_of(slot), pending.seq_of(slot)))

    @cython.ccall
    def flush(self) -> cython.void:
        """Record the run, if there is one."""
        if self.ids and self.owner is not None:
            members.record_claims(
                self.call,
                self.key,
                self.group,
                self.owner,
                self.ids,
                self.time_ms,
                self.deliveries,
                self.group_last_id,
            )
            self.ids = []
