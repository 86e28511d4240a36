"""Wait for new entries on behalf of all followers of a backend: one thread, one request that blocks.

    follower ──submit(FollowRead)──▶ waiting ──check: XREAD──▶ it has entries: on_done()
                                        │
                                        └─ none yet ──▶ XREAD BLOCK over the streams of all that wait
                                                          │
    a follower joins ── wakes the thread, which checks ───┘ an entry wakes it, too: on_done() of all that have
                                                            the position from which the read started

The blocking read covers a follower that has read everything up to the read's position: the follower joins
without a request. A follower submits a read for each page, so a slow one does not delay the others.

The blocking read has a time limit while followers have entries not yet checked for gaps: see stream_gaps.py.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from headrace.api.backend import Backend, Stop, Wakeup
from headrace.api.info import dict_from_reply
from headrace.api.stream_gaps import GapWatch
from headrace.api.stream_id import StreamID, id_from_reply
from headrace.errors import CommandError, HeadraceError, copy_error
from headrace.fork_safe_lock import ForkSafeLock

PAGE_ENTRIES = 256  # entries that a follower gets at a time
IDLE_THREAD_S = 1.0  # how long the thread stays when no follower waits
CHECKS_PER_ROUND_TRIP = 64  # checks sent in one round trip

Reply = list[Any]


class FollowRead:
    """The request of one follower for its next entries.

    Args:
        key: the stream.
        position: entries after this ID; None: entries added from now on.
        count: the maximum number of entries; None: no limit.
        gaps: the follower's watch; None: the follower does not look for gaps.
        deliver: called from any thread when `reply` or `error` is set. It must not block.

    Attributes:
        reply: the entries, as in a reply; None as long as there are none.
        error: the error that ended the wait; None without one.
    """

    __slots__ = ("count", "error", "gap_watch", "is_caught_up", "key", "on_done", "position", "reply")

    def __init__(
        self,
        key: bytes,
        position: StreamID | None,
        count: int | None,
        gaps: GapWatch | None,
        deliver: Callable[[], None],
    ) -> None:
        self.key = key
        self.position = position
        self.count = count
        self.gap_watch = gaps
        self.on_done = deliver
        self.is_caught_up = False  # there was no entry when it was checked
        self.reply: Reply | None = None
        self.error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """Whether the read has ended, with entries or an error."""
        return self.reply is not None or self.error is not None

    def result(self) -> Reply:
        """Return the entries, or [] if there are none. Raises the error that ended the wait."""
        if self.error is not None:
            raise copy_error(self.error)
        return self.reply or []

    def nonblocking_read_request(self) -> tuple[bytes, ...]:
        """Return the command that reads its entries without waiting."""
        assert self.position is not None
        count = () if self.count is None else (b"COUNT", b"%d" % self.count)
        return (b"XREAD", *count, b"STREAMS", self.key, bytes(self.position))


class FollowerHub:
    """The followers of one backend. The thread starts with the first of them, and ends after the last one."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._waiting: dict[FollowRead, None] = {}
        self._covered: dict[bytes, StreamID] = {}  # positions of the blocking read, while it runs
        self._blocking_read_stop: Stop | None = None  # ends the blocking read
        self._has_limit = False  # the blocking read ends in time for the next check for gaps
        self._idle_wakeup = Wakeup()
        self._is_running = False
        self._pid = os.getpid()

    def submit(self, backend: Backend, read: FollowRead) -> None:
        """Queue the read of a follower; its on_done() is called when there are entries, or an error."""
        with self._lock:
            if self._pid != os.getpid():  # the thread stayed in the parent process
                self._pid, self._is_running, self._waiting = os.getpid(), False, {}
                self._covered, self._blocking_read_stop = {}, None
            read.is_caught_up = self._is_covered(read)
            self._waiting[read] = None
            rearm = None if read.is_caught_up else self._blocking_read_stop
            starts = not self._is_running
            self._is_running = True
        if starts:
            threading.Thread(
                target=self._run, args=(weakref.ref(backend),), name="headrace followers", daemon=True
            ).start()
        elif rearm is not None:
            rearm.set()
        else:
            self._idle_wakeup.wake()

    def _is_covered(self, read: FollowRead) -> bool:
        start = self._covered.get(read.key)
        if start is None or read.position is None:
            return False
        if read.gap_watch is not None and (
            read.gap_watch.is_due() or not (self._has_limit or read.gap_watch.seconds_until_due() is None)
        ):
            return False
        return read.position >= start

    def cancel(self, read: FollowRead) -> None:
        """Remove the read of a follower. If it is done by now, its result is in the read.

        When no follower waits any more, the blocking read is ended, which releases its connection.
        """
        with self._lock:
            self._waiting.pop(read, None)
            rearm = None if self._waiting else self._blocking_read_stop
        if rearm is not None:
            rearm.set()

    # The thread.

    def _run(self, backend_ref: Callable[[], Backend | None]) -> None:
        """Serve the followers. While none waits, the thread keeps no database alive."""
        while True:
            with self._lock:
                reads = list(self._waiting)
            if reads:
                backend = backend_ref()
                assert backend is not None  # each follower that waits has a reference
                self._serve(backend, reads)
                del backend, reads
            elif not self._idle_wakeup.wait(IDLE_THREAD_S):
                with self._lock:
                    if not self._waiting:
                        self._is_running = False
                        return

    def _serve(self, backend: Backend, reads: Sequence[FollowRead]) -> None:
        try:
            unchecked = [one for one in reads if not one.is_caught_up]
            if unchecked:
                self._read_without_blocking(backend, unchecked)
            else:
                self._read_blocking(backend, reads)
        except BaseException as error:  # the followers raise it; the thread serves the next ones
            self._finish(reads, error=error)

    def _read_without_blocking(self, backend: Backend, reads: Sequence[FollowRead]) -> None:
        """Read what the followers have not read yet, without waiting."""
        self._resolve_starts_and_gaps(backend, reads)
        groups: dict[tuple[bytes, ...], list[FollowRead]] = {}
        for one in reads:
            groups.setdefault(one.nonblocking_read_request(), []).append(one)
        requests = list(groups)
        for at in range(0, len(requests), CHECKS_PER_ROUND_TRIP):
            chunk = requests[at : at + CHECKS_PER_ROUND_TRIP]
            keys = keys_for_gap_check(one for words in chunk for one in groups[words])
            replies = backend.request_all([*chunk, *map(stream_info_request, keys)])
            about = dict(zip(keys, replies[len(chunk) :], strict=True))
            for words, reply in zip(chunk, replies, strict=False):
                if isinstance(reply, CommandError):
                    self._finish(groups[words], error=reply)
                elif reply:
                    self._deliver(groups[words], reply[0][1], about)
                else:
                    for one in groups[words]:
                        one.is_caught_up = True

    def _resolve_starts_and_gaps(self, backend: Backend, reads: Sequence[FollowRead]) -> None:
        """Find the positions of followers that start at the end, and gaps before those of others."""
        asked: dict[bytes, list[FollowRead]] = {}
        for one in reads:
            if one.position is None or (one.gap_watch is not None and one.gap_watch.is_due()):
                asked.setdefault(one.key, []).append(one)
        if not asked:
            return
        replies = backend.request_all(list(map(stream_info_request, asked)))
        for about, of_stream in zip(replies, asked.values(), strict=True):
            info = stream_info_or_none(about)
            for one in of_stream:
                if one.position is None:
                    last = StreamID.MIN if info is None else id_from_reply(info["last-generated-id"])
                    one.position = last
                    if one.gap_watch is not None:
                        one.gap_watch.set_start(last)
                if one.gap_watch is not None:
                    check_gaps_or_postpone(one.gap_watch, info, [])
                    if one.gap_watch.must_raise:
                        self._finish([one], reply=[])

    def _read_blocking(self, backend: Backend, reads: Sequence[FollowRead]) -> None:
        """Wait until one of the streams has an entry, or a follower joins that is not covered."""
        starts: dict[bytes, StreamID] = {}
        for one in reads:
            assert one.position is not None
            starts[one.key] = min(starts.get(one.key, one.position), one.position)
        due = (one.gap_watch.seconds_until_due() for one in reads if one.gap_watch is not None)
        limit = min((seconds for seconds in due if seconds is not None), default=None)
        rearm = Stop()
        with self._lock:
            if any(not one.is_caught_up for one in self._waiting):
                return  # it joined meanwhile
            self._covered, self._blocking_read_stop, self._has_limit = starts, rearm, limit is not None
        words = [b"XREAD", b"COUNT", b"%d" % PAGE_ENTRIES, b"STREAMS", *starts, *map(bytes, starts.values())]
        try:
            reply = backend.execute_blocking_read(words, limit, rearm)
        except CommandError as error:  # of one of the streams, which a check finds
            self._read_without_blocking(backend, reads)
            if all(one.is_caught_up for one in reads if not one.is_done):
                self._finish([one for one in reads if not one.is_done], error=error)
            return
        finally:
            with self._lock:
                self._covered, self._blocking_read_stop = {}, None
                served = list(self._waiting)
        if not reply:
            if not rearm.is_set():
                self._resolve_starts_and_gaps(backend, served)
            return
        followers = {key: [one for one in served if one.key == key] for key, _ in reply}
        keys = keys_for_gap_check(one for of_stream in followers.values() for one in of_stream)
        infos = backend.request_all(list(map(stream_info_request, keys))) if keys else []
        about = dict(zip(keys, infos, strict=True))
        for key, entries in reply:
            same = [one for one in followers[key] if one.position == starts[key]]
            for one in followers[key]:
                one.is_caught_up = False
            self._deliver(same, entries, about)

    def _deliver(self, reads: Sequence[FollowRead], entries: Reply, about: dict[bytes, Any]) -> None:
        """Give followers of a stream the entries that were read, after a check for gaps.

        about: replies of XINFO STREAM, by stream, which were read after the entries.
        """
        for one in reads:
            if one.gap_watch is not None and one.gap_watch.raises_gaps and one.key in about:
                check_gaps_or_postpone(
                    one.gap_watch, stream_info_or_none(about[one.key]), entries[: one.count]
                )
        self._finish(reads, reply=entries)

    def _finish(
        self, reads: Sequence[FollowRead], reply: Reply | None = None, error: BaseException | None = None
    ) -> None:
        """Give followers that still wait their result."""
        for one in reads:
            with self._lock:
                if one not in self._waiting:
                    continue
                del self._waiting[one]
                one.reply = reply if reply is None or one.count is None else reply[: one.count]
                one.error = error
            one.on_done()


def keys_for_gap_check(reads: Iterable[FollowRead]) -> list[bytes]:
    """Return the streams of followers that check each read for gaps."""
    found = (one.key for one in reads if one.gap_watch is not None and one.gap_watch.raises_gaps)
    return list(dict.fromkeys(found))


def stream_info_request(key: bytes) -> tuple[bytes, ...]:
    """Return the request for the state of a stream."""
    return (b"XINFO", b"STREAM", key)


def stream_info_or_none(reply: Any) -> dict[str, Any] | None:
    """Return the reply of XINFO STREAM as a dictionary; None if the reply is an error.

    The reply is an error, for example, if the stream does not exist or the user may not send XINFO.
    """
    return None if isinstance(reply, CommandError) else dict_from_reply(reply)


def check_gaps_or_postpone(gaps: GapWatch, info: dict[str, Any] | None, unread: Reply) -> None:
    """Look for entries that were removed after a follower's position and before it read them.

    Args:
        gaps: the follower's GapWatch.
        info: the state of the stream; None: unknown, the check is repeated later.
        unread: what was received and is not delivered yet.
    """
    if info is None:
        gaps.schedule_next_check()
    else:
        gaps.find_gap(info, unread)


HUBS_BY_BACKEND: weakref.WeakKeyDictionary[Backend, dict[int, FollowerHub]] = weakref.WeakKeyDictionary()
HUBS_LOCK = ForkSafeLock()


def hub_of(backend: Backend, key: bytes) -> FollowerHub:
    """Return the hub for the followers of a stream: one for each backend, or in a cluster for each slot."""
    slot_of = getattr(backend, "slot_of", None)
    slot = 0 if slot_of is None else slot_of(key)
    with HUBS_LOCK:
        hubs = HUBS_BY_BACKEND.setdefault(backend, {})
        return hubs.setdefault(slot, FollowerHub())


def read_through_hub(
    backend: Backend,
    read: Callable[[Callable[[], None]], FollowRead],
    seconds: float | None,
    stop: Stop | None,
) -> FollowRead:
    """Wait in this thread for the entries of a read.

    read: makes the read, given its on_done(). seconds: the longest wait; None: no limit. stop: ends the wait.
    Returns the read, without a result after a timeout or `stop.set()`.
    """
    wakeup = Wakeup()
    request = read(wakeup.wake)
    hub = hub_of(backend, request.key)
    end = None if seconds is None else time.monotonic() + seconds
    if stop is not None:
        stop.add_wakeup(wakeup)
    hub.submit(backend, request)
    try:
        while not request.is_done and not (stop is not None and stop.is_set()):
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            wakeup.wait(left)
    finally:
        hub.cancel(request)
        if stop is not None:
            stop.remove_wakeup(wakeup)
    return request


def check_gaps_at_end(backend: Backend, key: bytes, gaps: GapWatch) -> None:
    """Check for gaps when a follower is stopped; not if the server is away, for which nothing waits here."""
    with suppress(HeadraceError):  # there is no stream or no connection, or the user may not ask
        gaps.find_gap(dict_from_reply(backend.without_retries().request(b"XINFO", b"STREAM", key)))
