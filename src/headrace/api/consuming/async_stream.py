"""Following a stream in asyncio: the wait is in a thread of its own, the entries are the loop's."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from headrace.api.backend import Stop
from headrace.api.codecs.arguments import IdLike, id_of
from headrace.api.entry import Entry

if TYPE_CHECKING:
    from headrace.api.stream import Stream

T = TypeVar("T")

COUNT = 256  # entries at a time


class Following(Stop):
    """Set by whoever leaves the loop, and by the user's Stop, which takes it for a bell."""

    __slots__ = ()

    def ring(self) -> None:
        """The user's was set."""
        self.set()


async def follow(stream: Stream[T], after: IdLike, stop: Stop | None) -> AsyncIterator[Entry[T]]:
    """See Stream.follow_async."""
    loop = asyncio.get_running_loop()
    halt = Following()
    if stop is not None:
        stop.listen(halt)
    thread = ThreadPoolExecutor(1, thread_name_prefix=f"headrace follow {stream.name}")
    waiting: asyncio.Future[list[Entry[T]]] | None = None
    try:
        at = await loop.run_in_executor(thread, stream._last_id) if after == "$" else id_of(after)
        while not halt.is_set():
            waiting = loop.run_in_executor(thread, stream.read, at, COUNT, math.inf, halt)
            for entry in await asyncio.shield(waiting):
                if halt.is_set():
                    return
                yield entry
                at = entry.id
    finally:
        halt.set()
        if stop is not None:
            stop.forget(halt)
        if waiting is not None and not waiting.done():  # cancelled: the thread ends within moments
            await asyncio.wait([waiting])
            waiting.exception()  # whatever it was, nobody asks for it now
        thread.shutdown(wait=False)
