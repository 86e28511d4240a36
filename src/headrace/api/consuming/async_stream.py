"""Follow a stream in asyncio: the thread of the FollowerHub waits, and the loop receives the entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TypeVar

from headrace.api.backend import Backend, Stop
from headrace.api.codecs.codec import Codec
from headrace.api.entry import Entry, entries_from_reply
from headrace.api.follower_hub import PAGE_ENTRIES, FollowRead, check_gaps_at_end, hub_of
from headrace.api.stream_gaps import GapWatch
from headrace.api.stream_id import StreamID

T = TypeVar("T")


class AsyncWakeup:
    """A task sleeps on it until wake(), which any thread and a signal handler may call."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        """End the current wait, or the next one."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        """Sleep until wake() is called."""
        await self._event.wait()
        self._event.clear()


async def follow(
    backend: Backend,
    key: bytes,
    codec: Codec[T],
    after: StreamID | None,
    stop: Stop | None,
    gaps: GapWatch,
) -> AsyncIterator[Entry[T]]:
    """Yield the entries of Stream.follow_async(). after: None: entries added from now on."""
    wakeup = AsyncWakeup()
    hub = hub_of(backend, key)
    position = after
    if stop is not None:
        stop.add_wakeup(wakeup)
    try:
        while stop is None or not stop.is_set():
            read = FollowRead(key, position, PAGE_ENTRIES, gaps, wakeup.wake)
            hub.submit(backend, read)
            try:
                while not read.is_done and not (stop is not None and stop.is_set()):
                    await wakeup.wait()
            finally:
                hub.cancel(read)
            position = read.position
            entries = entries_from_reply([*read.result()], codec)
            gaps.raise_found()
            for entry in entries:
                if stop is not None and stop.is_set():
                    break
                gaps.record_read(entry.id)
                position = entry.id
                yield entry
        if gaps.has_unchecked_entries:
            await asyncio.to_thread(check_gaps_at_end, backend, key, gaps)
    finally:
        if stop is not None:
            stop.remove_wakeup(wakeup)
