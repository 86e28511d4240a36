"""The slow log: the latest requests that took longer than the configured time, newest first.

Arguments are shortened before they are stored, to bound the size of the log: at most 32 arguments of 128
bytes. A text replaces the omitted part.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

ARGUMENTS_MAX = 32
ARGUMENT_BYTES_MAX = 128


class SlowRequest(NamedTuple):
    """One request of the slow log."""

    number: int  # counted since the start; clear() does not reset it
    at_s: int  # seconds since 1970
    microseconds: int
    words: list[bytes]
    address: bytes
    client_name: bytes


class SlowLog:
    """The slow requests, newest first; the oldest are dropped when there are too many."""

    def __init__(self) -> None:
        self.requests: deque[SlowRequest] = deque()
        self.next_number = 0

    def add(
        self, at_s: int, microseconds: int, words: list[bytes], address: bytes, name: bytes, max_requests: int
    ) -> None:
        """Store the request; keep at most `max_requests`. Secrets must have been removed from `words`."""
        request = SlowRequest(self.next_number, at_s, microseconds, shortened_arguments(words), address, name)
        self.next_number += 1
        self.requests.appendleft(request)
        while len(self.requests) > max_requests:
            self.requests.pop()

    def clear(self) -> None:
        """Delete all requests."""
        self.requests.clear()


def shortened_arguments(words: list[bytes]) -> list[bytes]:
    """Return the stored part of a request; its last item counts the omitted arguments."""
    if len(words) <= ARGUMENTS_MAX:
        return [shortened_argument(word) for word in words]
    kept = [shortened_argument(word) for word in words[: ARGUMENTS_MAX - 1]]
    return [*kept, b"... (%d more arguments)" % (len(words) - len(kept))]


def shortened_argument(word: bytes) -> bytes:
    """Return the stored part of an argument."""
    if len(word) <= ARGUMENT_BYTES_MAX:
        return word
    return word[:ARGUMENT_BYTES_MAX] + b"... (%d more bytes)" % (len(word) - ARGUMENT_BYTES_MAX)
