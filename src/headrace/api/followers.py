"""The iterators that follow() and follow_async() return."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Generic, TypeVar, cast

from headrace.api.entry import Entry
from headrace.api.stream_gaps import GapWatch, StreamGap

T = TypeVar("T")


class Follower(Iterator[Entry[T]], Generic[T]):
    """An iterator over a stream's entries, including those that are added later: see Stream.follow().

    Attributes:
        gaps: a StreamGap for each time that entries were found to be removed unread.
    """

    def __init__(self, entries: Iterator[Entry[T]], watch: GapWatch) -> None:
        self._entries = cast("Generator[Entry[T], None, None]", entries)
        self.gaps: list[StreamGap] = watch.found_gaps

    def __next__(self) -> Entry[T]:
        return next(self._entries)

    def close(self) -> None:
        """End the iteration."""
        self._entries.close()


class AsyncFollower(AsyncIterator[Entry[T]], Generic[T]):
    """An asynchronous iterator over present and later entries of a stream: see Stream.follow_async().

    Attributes:
        gaps: a StreamGap for each time that entries were found to be removed unread.
    """

    def __init__(self, entries: AsyncIterator[Entry[T]], watch: GapWatch) -> None:
        self._entries = cast("AsyncGenerator[Entry[T], None]", entries)
        self.gaps: list[StreamGap] = watch.found_gaps

    async def __anext__(self) -> Entry[T]:
        return await anext(self._entries)

    async def aclose(self) -> None:
        """End the iteration."""
        await self._entries.aclose()
