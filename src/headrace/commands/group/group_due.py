"""Decide whether to wake the readers of a stream, by the rules of its groups, and when to check again.

A stream may have thousands of groups with rules. While a reader waits, all of them are checked after each
command, so the loop is compiled: a group without pending entries takes 0.1 µs.
"""

from __future__ import annotations

import cython

from headrace.commands.group import ordered_read
from headrace.streams.group import Group
from headrace.streams.key_order import KeyOrder
from headrace.streams.stream import Stream

NEVER = cython.declare(cython.longlong, -1)
# Values for ORDERED-BY that one check reads before it leaves other groups to the next turn.
VALUES_READ_MAX = cython.declare(cython.int, 1000)
ORDER_CREATION_COST = cython.declare(cython.int, 20)  # of the creation of an order, in values


@cython.final
@cython.cclass
class GroupsCheck:
    """Finds out, in run(), whether waiting readers of a stream can be served, and when to check again."""

    stream: Stream
    now: cython.longlong
    has_waiters: cython.bint  # a client waits for the stream
    # Results.
    next_check_ms: cython.longlong  # when to check again, even if no command comes; -1: never
    is_complete: cython.bint  # False: the next turn checks again
    # A reader may receive entries that are due, or that MAX-PENDING now permits.
    has_ready_reader: cython.bint
    value_budget: cython.int  # that may be read; 0 or less: none

    def __init__(self, stream: Stream, now: cython.longlong, has_waiters: cython.bint) -> None:
        self.stream = stream
        self.now = now
        self.has_waiters = has_waiters
        self.next_check_ms = NEVER
        self.is_complete = True
        self.has_ready_reader = False
        self.value_budget = VALUES_READ_MAX

    @cython.ccall
    def run(self) -> cython.void:
        """Check all groups with rules."""
        group: Group
        order: KeyOrder | None
        for group in self.stream.unsorted_groups():
            if group.rules is None:
                continue
            order = group.pending.key_order
            if order is None and group.due_entries is None and self.has_waiters and group.is_ordered():
                order = self._new_order(group)
            if order is not None and not order.are_values_read:
                self._load_pending_values(group, order)
            elif self.has_waiters:
                self._check_readers(group, order)

    @cython.cfunc
    def _new_order(self, group: Group) -> KeyOrder | None:
        """Create the order of a group with ORDERED-BY; return None if that is left to the next turn."""
        if self.value_budget <= 0:
            self.is_complete = False
            return None
        self.value_budget -= ORDER_CREATION_COST
        order: KeyOrder = group.ensure_key_order()
        order.last_read_was_incomplete = True
        return order

    @cython.cfunc
    def _load_pending_values(self, group: Group, order: KeyOrder) -> cython.void:
        """Read values for ORDERED-BY; the next turn reads the rest, or checks the readers."""
        if self.value_budget > 0:
            self.value_budget -= ordered_read.load_pending_values(order, group.pending, self.stream)
        if self.has_waiters or not order.are_values_read:
            self.is_complete = False

    @cython.cfunc
    def _check_readers(self, group: Group, order: KeyOrder | None) -> cython.void:
        """Check whether the group has entries for readers, or when it will."""
        due: cython.longlong = NEVER
        if group.due_entries is not None:
            due = group.due_entries.next_due_ms()
        elif order is not None:
            due = order.next_due_ms(self.now)
            if order.last_read_was_incomplete or order.has_newly_available:
                self.has_ready_reader = True
        if due > self.now and (self.next_check_ms < 0 or due < self.next_check_ms):
            self.next_check_ms = due
        if 0 <= due <= self.now or (group.rules is not None and group.rules.max_pending > 0):
            self.has_ready_reader = True
