"""ORDERED-BY: give entries with the same value of a field to one consumer at a time, in order.

    value       holder    delivered     waiting
    "ann"       c1        1-0  4-0      9-0  12-0       c1 gets 9-0 and 12-0 with its next reads
    "bob"       none                    7-0             any consumer gets 7-0
    (no field)  c2        5-0                           an entry without the field has a queue of its own

An entry waits if its delivery count or its delivery time is 0, or if it has no owner: no consumer has it.
While entries of a value are delivered, only their owner, the holder, receives more of them. A queue is due
when the leases of all its delivered entries have ended, or when only waiting ones are left; then any consumer
takes the queue, from its first entry on. When one lease has ended and another has not, no consumer receives
more entries of this value. So a queue with a failed entry becomes due soon, and no two consumers process a
value within their leases.

    checks        queues by time: when to look whether a queue is due; leases may be renewed till then
    free_queues   queues that any consumer may take, unless something has changed

All of it follows from the pending entries and the fields of the entries, so nothing of it is stored.
PendingEntries reports each change.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Any

import cython

from headrace.streams import memory_account
from headrace.streams.key_queue import KeyQueue
from headrace.streams.lease import Lease
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.pending_arena import PendingArena
from headrace.streams.pending_index import PendingIndex
from headrace.structures.timer_heap import TimerQueue
from headrace.visibility import Public

NO_SLOT = cython.declare(cython.Py_ssize_t, -1)
NEVER = cython.declare(cython.longlong, -1)
NO_HOLDER = cython.declare(cython.Py_ssize_t, 0)  # the owner of unowned records
SEVERAL_HOLDERS = cython.declare(cython.Py_ssize_t, -1)
SHARD_COUNT = cython.declare(cython.Py_ssize_t, 128)
RECHECKED_ENTRIES_MAX = cython.declare(cython.Py_ssize_t, 32)  # delivered entries
QUEUE_VISITS_MAX = cython.declare(cython.int, 1000)  # queues that one call looks at
# Words of `waiting_ids` that are kept without use.
CONSUMED_WAITING_WORDS_MAX = cython.declare(cython.Py_ssize_t, 1024)


@cython.final
@cython.cclass
class KeyOrder:
    """The queues of a group with ORDERED-BY. Consumers are given by their numbers, which are not 0."""

    arena: PendingArena
    by_id: PendingIndex
    lease: Lease
    field: bytes
    shards: list[dict[bytes, KeyQueue]]  # the queues by value; a large dict would take long to grow
    queues_by_slot: list[KeyQueue | None]  # None: free, or the value was not read yet
    delivered_counts: list[int]  # by consumer: the number of its delivered entries
    waiting_count: Public[cython.longlong]  # the number of waiting entries
    queues_by_holder: dict[int, dict[KeyQueue, bool]]  # those with waiting entries
    free_queues: deque[KeyQueue]
    check_timers: TimerQueue
    memory: MemoryAccount  # of the pending entries
    accounted_bytes: cython.Py_ssize_t  # the bytes of this order in it
    # Waiting entries that are given up, or could not be: a heap of the time until which each is skipped, and
    # its ID.
    skipped_entries: list[tuple[int, int, int]]
    # Values to be read: of the entries from this ID on.
    are_values_read: Public[cython.bint]
    first_unread_ms: Public[cython.ulonglong]
    first_unread_seq: Public[cython.ulonglong]
    last_read_was_incomplete: Public[cython.bint]  # a read has left entries that it might have delivered
    has_newly_available: Public[
        cython.bint
    ]  # a consumer may receive waiting entries that it could not receive before
    # The value of the entry that is added next.
    next_value: bytes | None
    next_is_known: cython.bint

    def __init__(self, arena: PendingArena, by_id: PendingIndex, lease: Lease, field: bytes) -> None:
        self.arena = arena
        self.by_id = by_id
        self.lease = lease
        self.field = field
        self.shards = [{} for _ in range(SHARD_COUNT)]
        self.queues_by_slot = []
        self.delivered_counts = []
        self.waiting_count = 0
        self.queues_by_holder = {}
        self.free_queues = deque()
        self.check_timers = TimerQueue()
        self.memory = arena.memory
        self.accounted_bytes = 0
        self.skipped_entries = []
        self.are_values_read = by_id.count == 0
        self.first_unread_ms = self.first_unread_seq = 0
        self.last_read_was_incomplete = self.has_newly_available = False
        self.next_value = None
        self.next_is_known = False

    # Changes of pending entries.

    @cython.ccall
    def set_next_value(self, value: bytes | None) -> cython.void:
        """Set the value of the entry that is added next; None: it does not have the field."""
        self.next_value = value
        self.next_is_known = True

    @cython.cfunc
    def on_added(self, slot: cython.Py_ssize_t) -> cython.void:
        """Put a new pending entry into its queue, or mark it as one whose value is still to be read."""
        ms: cython.ulonglong = self.arena.ms_of(slot)
        seq: cython.ulonglong = self.arena.seq_of(slot)
        if self.next_is_known:
            self.next_is_known = False
            self.put(slot, self.next_value)
        elif self.are_values_read or (ms, seq) < (self.first_unread_ms, self.first_unread_seq):
            self.are_values_read = False
            self.first_unread_ms = ms
            self.first_unread_seq = seq

    @cython.ccall
    def put(self, slot: cython.Py_ssize_t, value: bytes | None) -> cython.void:
        """Add a pending entry with this value; None: it does not have the field."""
        queue: KeyQueue | None = self.queue_of_value(value)
        if queue is None:
            queue = KeyQueue(value)
            if value is not None:
                self._shard(value)[value] = queue
        while len(self.queues_by_slot) <= slot:
            self.queues_by_slot.append(None)
            self._account(memory_account.QUEUE_SLOT_BYTES)
        self.queues_by_slot[slot] = queue
        queue.count += 1
        self._enter(queue, slot)

    @cython.ccall
    def set_lease(self, lease: Lease) -> cython.void:
        """Replace the lease after a change of LEASE or BACKOFF.

        The values of all entries count as unknown then: load_pending_values() looks them up again. The
        caller must call reschedule_check() for each entry.
        """
        self.lease = lease
        self.are_values_read = self.by_id.count == 0
        self.first_unread_ms = self.first_unread_seq = 0

    @cython.ccall
    def reschedule_check(self, slot: cython.Py_ssize_t) -> cython.void:
        """Schedule the check of an entry's queue by the present lease."""
        queue: KeyQueue | None = self.queue_of_slot(slot)
        if queue is not None and not self._waits(slot):
            queue.expires_ms = min(queue.expires_ms, self._lease_end_ms(slot))
            self._move_check_earlier(queue)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def dispose(self, steps: cython.Py_ssize_t) -> cython.bint:
        """Free a part of the memory of an order that is out of use; return whether to call this again."""
        shard: dict[bytes, KeyQueue]
        while steps > 0 and self.queues_by_slot:
            self.queues_by_slot.pop()
            shard = self.shards[steps & (SHARD_COUNT - 1)]
            if shard:
                shard.popitem()
            if self.check_timers.items:
                self.check_timers.items.pop()
            steps -= 1
        return len(self.queues_by_slot) > 0

    @cython.ccall
    def queue_of_slot(self, slot: cython.Py_ssize_t) -> KeyQueue | None:
        """Return the queue of a pending entry; None if its value was not read yet."""
        return self.queues_by_slot[slot] if slot < len(self.queues_by_slot) else None

    @cython.cfunc
    def before_change(self, slot: cython.Py_ssize_t) -> cython.void:
        """Take an entry out of its queue: its owner, time or count is about to change."""
        queue: KeyQueue | None = self.queue_of_slot(slot)
        if queue is not None:
            self._leave(queue, slot)

    @cython.cfunc
    def after_change(self, slot: cython.Py_ssize_t) -> cython.void:
        """Put an entry back into its queue: its owner, time or count has changed."""
        queue: KeyQueue | None = self.queue_of_slot(slot)
        if queue is not None:
            self._enter(queue, slot)
            self._move_check_earlier(queue)

    @cython.cfunc
    def before_removal(self, slot: cython.Py_ssize_t) -> cython.void:
        """Take an entry out of its queue for good: it is about to be removed."""
        queue: KeyQueue | None = self.queue_of_slot(slot)
        if queue is None:
            return
        self._leave(queue, slot)
        self.queues_by_slot[slot] = None
        queue.count -= 1
        if queue.count == 0:
            if queue.ordering_value is not None:
                del self._shard(queue.ordering_value)[queue.ordering_value]
            self._cancel_check(queue)
            self._update_account(queue)
        elif queue.holder != NO_HOLDER:
            self._move_check_earlier(queue)
        elif self.first_waiting_slot(queue) >= 0:
            self._set_free(queue)

    @cython.cfunc
    def _enter(self, queue: KeyQueue, slot: cython.Py_ssize_t) -> cython.void:
        """Add the entry to its queue, by its owner and time."""
        owner: cython.Py_ssize_t = self.arena.owner_of(slot)
        if self._waits(slot):
            self.waiting_count += 1
            self._add_waiting(queue, self.arena.ms_of(slot), self.arena.seq_of(slot))
            return
        while len(self.delivered_counts) <= owner:
            self.delivered_counts.append(0)
        self.delivered_counts[owner] += 1
        end: cython.longlong = self._lease_end_ms(slot)
        queue.expires_ms = end if queue.delivered_slot < 0 else min(queue.expires_ms, end)
        queue.add_delivered(slot, owner)
        self._update_account(queue)
        if queue.timer_number < 0:
            self._plan_check(queue, self._due_of(queue))
        if queue.waiting_ids is not None:
            self._offer(queue)

    @cython.cfunc
    def _leave(self, queue: KeyQueue, slot: cython.Py_ssize_t) -> cython.void:
        """Remove the entry from its queue. A waiting one stays in `waiting_ids`, and is skipped later."""
        if self._waits(slot):
            self.waiting_count -= 1
            return
        self.delivered_counts[self.arena.owner_of(slot)] -= 1
        queue.drop_delivered(slot, self.arena.owner_of(slot))
        self._update_account(queue)
        if queue.waiting_ids is not None and queue.holder != NO_HOLDER:
            self._offer(queue)

    @cython.cfunc
    def _add_waiting(self, queue: KeyQueue, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Add a waiting entry to its queue."""
        queue.add_waiting(ms, seq)
        self._update_account(queue)
        self._offer(queue)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _waits(self, slot: cython.Py_ssize_t) -> cython.bint:
        if self.arena.owner_of(slot) == NO_HOLDER or self.arena.delivery_time_of(slot) == 0:
            return True
        return self.arena.delivery_count_of(slot) == 0

    @cython.cfunc
    def _offer(self, queue: KeyQueue) -> cython.void:
        """Let the holder find the queue, or all consumers if the queue has no holder."""
        self.has_newly_available = True
        if queue.holder == NO_HOLDER:
            self._set_free(queue)
        elif queue.holder != SEVERAL_HOLDERS:
            queues: dict[KeyQueue, bool] | None = self.queues_by_holder.get(queue.holder)
            if queues is None:
                queues = self.queues_by_holder[queue.holder] = {}
            queues[queue] = True

    @cython.cfunc
    def _set_free(self, queue: KeyQueue) -> cython.void:
        if not queue.is_free:
            queue.is_free = True
            self.free_queues.append(queue)

    # Memory.

    @cython.cfunc
    def _account(self, n: cython.Py_ssize_t) -> cython.void:
        self.accounted_bytes += n
        self.memory.add(n)

    @cython.cfunc
    def _update_account(self, queue: KeyQueue) -> cython.void:
        """Account for the memory of a queue that has changed."""
        now: cython.Py_ssize_t = queue.memory_bytes() if queue.count > 0 else 0
        if now != queue.accounted_bytes:
            self._account(now - queue.accounted_bytes)
            queue.accounted_bytes = now

    @cython.ccall
    def subtract_from_account(self) -> cython.void:
        """Subtract all bytes of the order from the account: the group does not use it any more."""
        self._account(-self.accounted_bytes)

    # Times.

    @cython.cfunc
    def _lease_end_ms(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return when the lease of a delivered entry ends."""
        return self.lease.end_ms(self.arena.delivery_time_of(slot), self.arena.delivery_count_of(slot))

    @cython.cfunc
    def _due_of(self, queue: KeyQueue) -> cython.longlong:
        """Return when the last lease of the delivered entries ends; -1 if there are none."""
        due: cython.longlong = NEVER
        slot: cython.Py_ssize_t
        for slot in queue.delivered_slots():
            due = max(due, self._lease_end_ms(slot))
        return due

    @cython.cfunc
    def _plan_check(self, queue: KeyQueue, at: cython.longlong) -> cython.void:
        """Plan the check of a queue for the time `at`; it replaces the one planned before."""
        if queue.timer_number < 0:
            queue.timer_number = self.check_timers.add(at, queue)
        else:
            self.check_timers.change_deadline(queue.timer_number, at)

    @cython.cfunc
    def _cancel_check(self, queue: KeyQueue) -> cython.void:
        if queue.timer_number >= 0:
            self.check_timers.remove(queue.timer_number)
            queue.timer_number = NO_SLOT

    @cython.cfunc
    def _planned_check_ms(self, queue: KeyQueue) -> cython.longlong:
        """Return when the check of a queue is planned; -1: it is not."""
        return NEVER if queue.timer_number < 0 else self.check_timers.deadline_of(queue.timer_number)

    @cython.cfunc
    def _move_check_earlier(self, queue: KeyQueue) -> cython.void:
        """Plan the check of a queue earlier if the queue is now due earlier.

        The check of a queue with many delivered entries stays, because to compute the time takes too long.
        """
        if (
            queue.other_delivered_slots is not None
            and len(queue.other_delivered_slots) > RECHECKED_ENTRIES_MAX
        ):
            return
        due: cython.longlong = self._due_of(queue)
        if 0 <= due < self._planned_check_ms(queue):
            self._plan_check(queue, due)

    @cython.ccall
    def next_due_ms(self, now: cython.longlong) -> cython.longlong:
        """Return when any consumer may take a queue, in Unix milliseconds; 0 if one may now; -1 for never."""
        if self._fill_free_queues(now):
            return 0
        due: cython.longlong = self.check_timers.next_deadline()
        until: cython.longlong
        if self.skipped_entries:
            until = self.skipped_entries[0][0]
            if due < 0 or until < due:
                due = until
        return due

    @cython.cfunc
    def _fill_free_queues(self, now: cython.longlong) -> cython.bint:
        """Move queues whose check is due to free_queues until a consumer may take the first one there.

        Returns whether there is one, or the search is not finished.
        """
        queue: KeyQueue | None
        due: cython.longlong
        _visits: cython.int
        if self.skipped_entries:
            self._requeue_skipped(now)
        for _visits in range(QUEUE_VISITS_MAX):
            if self.free_queues:
                if self._may_be_taken(self.free_queues[0], now):
                    return True
                queue = self.free_queues.popleft()
                queue.is_free = False
                if (
                    queue.delivered_slot >= 0 and queue.timer_number < 0
                ):  # its leases were renewed, or LEASE is longer now
                    self._plan_check(queue, self._due_of(queue))
                continue
            queue = self.check_timers.first_due(now)
            if queue is None:
                return False
            due = self._due_of(queue)
            if due > now:
                self._plan_check(queue, due)
            else:
                self._cancel_check(queue)
                self._set_free(queue)
        self.last_read_was_incomplete = True
        return True

    @cython.cfunc
    def _may_be_taken(self, queue: KeyQueue, now: cython.longlong) -> cython.bint:
        if queue.holder == NO_HOLDER:
            return self.first_waiting_slot(queue) >= 0
        return self._due_of(queue) <= now

    # Reading.

    @cython.ccall
    @cython.exceptval(check=False)
    def delivered_count_of(self, consumer: cython.Py_ssize_t) -> cython.longlong:
        """Return how many delivered entries the consumer has."""
        return self.delivered_counts[consumer] if consumer < len(self.delivered_counts) else 0

    @cython.ccall
    def pop_free_queue(self, now: cython.longlong) -> KeyQueue | None:
        """Remove and return a queue that any consumer may take now.

        Returns None if there is none, or if the search was ended after QUEUE_VISITS_MAX queues.
        """
        if (
            not self._fill_free_queues(now)
            or not self.free_queues
            or not self._may_be_taken(self.free_queues[0], now)
        ):
            return None
        queue: KeyQueue = self.free_queues.popleft()
        queue.is_free = False
        return queue

    @cython.ccall
    def take_delivered(self, queue: KeyQueue) -> list[Any]:
        """Take all delivered entries out of a queue from pop_free_queue(); return their slots in order.

        The caller assigns them, in order, and calls give_back().
        """
        found: list[tuple[int, int, int]] = [
            (self.arena.ms_of(slot), self.arena.seq_of(slot), slot) for slot in queue.delivered_slots()
        ]
        found.sort()
        queue.drop_all_delivered()
        self._update_account(queue)
        return [item[2] for item in found]

    @cython.ccall
    def give_back(self, queue: KeyQueue, slots: list[Any], retry_at_ms: cython.longlong) -> cython.void:
        """Put back unassigned slots of take_delivered(); the queue is not due before retry_at_ms."""
        slot: cython.Py_ssize_t
        for slot in slots:
            self.delivered_counts[self.arena.owner_of(slot)] -= 1
            self._enter(queue, slot)
        if slots:
            self._plan_check(queue, max(self._planned_check_ms(queue), retry_at_ms))
        if queue.holder == NO_HOLDER and self.first_waiting_slot(queue) >= 0:
            self._set_free(queue)

    @cython.ccall
    def next_held_queue(self, consumer: cython.Py_ssize_t, now: cython.longlong) -> KeyQueue | None:
        """Return a queue that the consumer holds and whose waiting entries it may receive now; else None."""
        queues: dict[KeyQueue, bool] | None = self.queues_by_holder.get(consumer)
        queue: KeyQueue
        while queues:
            queue = next(iter(queues))
            if (
                queue.holder == consumer
                and self.first_waiting_slot(queue) >= 0
                and not self.has_expired_lease(queue, now)
            ):
                return queue
            del queues[queue]
        if queues is not None:
            del self.queues_by_holder[consumer]
        return None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def has_expired_lease(self, queue: KeyQueue, now: cython.longlong) -> cython.bint:
        """Return whether the lease of any delivered entry of the queue has ended."""
        slot: cython.Py_ssize_t
        earliest: cython.longlong = NEVER
        end: cython.longlong
        if queue.delivered_slot < 0 or now < queue.expires_ms:
            return False
        for slot in queue.delivered_slots():
            end = self._lease_end_ms(slot)
            if earliest < 0 or end < earliest:
                earliest = end
        queue.expires_ms = earliest
        return earliest <= now

    @cython.ccall
    def first_waiting_slot(self, queue: KeyQueue) -> cython.Py_ssize_t:
        """Return the slot of the queue's first waiting entry; -1 if there is none."""
        slot: cython.Py_ssize_t
        words = queue.waiting_ids
        if words is None:
            return NO_SLOT
        while queue.first_waiting_index < len(words):
            slot = self.by_id.find(words[queue.first_waiting_index], words[queue.first_waiting_index + 1])
            if slot >= 0 and self.queue_of_slot(slot) is queue and self._waits(slot):
                if (
                    queue.first_waiting_index > CONSUMED_WAITING_WORDS_MAX
                    and 2 * queue.first_waiting_index > len(words)
                ):
                    del words[: queue.first_waiting_index]
                    queue.first_waiting_index = 0
                    self._update_account(queue)
                return slot
            queue.first_waiting_index += 2
        queue.waiting_ids = None
        self._update_account(queue)
        return NO_SLOT

    @cython.ccall
    def skip_first_waiting(self, queue: KeyQueue, until: cython.longlong) -> cython.void:
        """Skip the queue's first waiting entry until this time; by then it is usually removed."""
        words = queue.waiting_ids
        if words is not None:
            ms, seq = words[queue.first_waiting_index], words[queue.first_waiting_index + 1]
            heappush(self.skipped_entries, (until, ms, seq))
            queue.first_waiting_index += 2

    @cython.cfunc
    def _requeue_skipped(self, now: cython.longlong) -> cython.void:
        """Put entries that are no longer skipped, and still wait, back into their queues."""
        queue: KeyQueue | None
        slot: cython.Py_ssize_t
        while self.skipped_entries and self.skipped_entries[0][0] <= now:
            _until, ms, seq = heappop(self.skipped_entries)
            slot = self.by_id.find(ms, seq)
            queue = self.queue_of_slot(slot) if slot >= 0 else None
            if queue is not None and self._waits(slot):
                self._add_waiting(queue, ms, seq)

    @cython.ccall
    def queue_of_value(self, value: bytes | None) -> KeyQueue | None:
        """Return the queue of the value; None if no entry with it is pending."""
        return None if value is None else self._shard(value).get(value)

    @cython.cfunc
    def _shard(self, value: bytes) -> dict[bytes, KeyQueue]:
        return self.shards[hash(value) & (SHARD_COUNT - 1)]

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def may_receive_next(
        self, queue: KeyQueue, consumer: cython.Py_ssize_t, now: cython.longlong
    ) -> cython.bint:
        """Return whether the consumer may receive a new entry of this value, after all that are pending."""
        if queue.holder != consumer or self.first_waiting_slot(queue) >= 0:
            return False
        return not self.has_expired_lease(queue, now)

    # Tests.

    @cython.ccall
    def check(self) -> cython.void:
        """Assert every invariant."""
        queue: KeyQueue | None
        slot: cython.Py_ssize_t
        waiting: cython.longlong = 0
        counts: dict[int, int] = {}
        for slot in self.by_id.slots():
            queue = self.queue_of_slot(slot)
            if queue is None:
                assert not self.are_values_read
                continue
            assert queue.ordering_value is None or self.queue_of_value(queue.ordering_value) is queue
            if self._waits(slot):
                waiting += 1
                continue
            owner: cython.Py_ssize_t = self.arena.owner_of(slot)
            counts[owner] = counts.get(owner, 0) + 1
            assert slot in queue.delivered_slots()
            assert queue.holder == owner or queue.holder == SEVERAL_HOLDERS
            assert queue.expires_ms <= self._lease_end_ms(slot)
            assert self._planned_check_ms(queue) >= 0 or queue.is_free
        assert waiting == self.waiting_count
        self.check_timers.check()
        self._check_account()
        assert {owner: count for owner, count in enumerate(self.delivered_counts) if count} == counts
        known: list[int] = [
            slot for slot in range(len(self.queues_by_slot)) if self.queues_by_slot[slot] is not None
        ]
        assert set(known) <= set(self.by_id.slots())
        values: set[bytes] = {value for shard in self.shards for value in shard}
        assert {queue.ordering_value for queue in self.queues_by_slot if queue is not None} - {None} == values

    @cython.cfunc
    def _check_account(self) -> cython.void:
        """Assert that each queue has its owners and is accounted for."""
        queue: KeyQueue
        total: cython.Py_ssize_t = memory_account.QUEUE_SLOT_BYTES * len(self.queues_by_slot)
        owners: list[int]
        for queue in {queue for queue in self.queues_by_slot if queue is not None}:
            assert queue.accounted_bytes == queue.memory_bytes()
            total += queue.accounted_bytes
            owners = [self.arena.owner_of(slot) for slot in queue.delivered_slots()]
            assert (queue.holder == SEVERAL_HOLDERS) == (len(set(owners)) > 1)
            assert queue.delivered_count_by_owner is None or queue.delivered_count_by_owner == {
                owner: owners.count(owner) for owner in owners
            }
        assert self.accounted_bytes == total
