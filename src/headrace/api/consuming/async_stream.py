"""Follow a stream in asyncio: a thread waits, and the loop receives the entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from headrace.api.backend import Stop
from headrace.api.codecs.arguments import IdLike, to_stream_id
from headrace.api.entry import Entry
from headrace.api.stream_gaps import GapWatch

if TYPE_CHECKING:
    from headrace.api.stream import Stream

T = TypeVar("T")

COUNT = 256  # entries at a time


class FollowStop(Stop):
    """Ends one follow: set when its iteration ends, or by the user's Stop, where it is registered as a
    wakeup.
    """

    __slots__ = ()

    def wake(self) -> None:
        """Called when the user's Stop is set."""
        self.set()


async def follow(stream: Stream[T], after: IdLike, stop: Stop | None) -> AsyncIterator[Entry[T]]:
    """See Stream.follow_async."""
    loop = asyncio.get_running_loop()
    follow_stop = FollowStop()
    if stop is not None:
        stop.add_wakeup(follow_stop)
    thread = ThreadPoolExecutor(1, thread_name_prefix=f"headrace follow {stream.name}")
    waiting: asyncio.Future[list[Entry[T]]] | None = None
    try:
        at = await loop.run_in_executor(thread, stream._last_id) if after == "$" else to_stream_id(after)
        gaps = GapWatch(stream.name, at)
        while not follow_stop.is_set():
            waiting = loop.run_in_executor(thread, stream._read_watched, gaps, at, COUNT, follow_stop)
            for entry in await asyncio.shield(waiting):
                if follow_stop.is_set():
                    return
                gaps.advance(entry.id)
                yield entry
                at = entry.id
    finally:
        follow_stop.set()
        if stop is not None:
            stop.remove_wakeup(follow_stop)
        if waiting is not None and not waiting.done():  # cancelled: the thread ends within moments
            await asyncio.wait([waiting])
            waiting.exception()  # mark the error as retrieved; no caller needs it
        thread.shutdown(wait=False)
