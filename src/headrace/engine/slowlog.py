"""The slow log: the latest requests that took longer than the operator allows, newest first.

Words are shortened before they are kept, so that the log stays small whatever clients send: 32 words of
128 bytes, and what was left out is said in place of it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

WORDS_MAX = 32
WORD_BYTES_MAX = 128


class SlowRequest(NamedTuple):
    """One request of the log."""

    number: int  # counted since the start; forgetting does not begin anew
    at_s: int  # seconds since 1970
    microseconds: int
    words: list[bytes]
    address: bytes
    name: bytes


class SlowLog:
    """The newest come first; the oldest go when there are too many."""

    def __init__(self) -> None:
        self.requests: deque[SlowRequest] = deque()
        self.next_number = 0

    def add(
        self, at_s: int, microseconds: int, words: list[bytes], address: bytes, name: bytes, max_requests: int
    ) -> None:
        """Keep the request, and of all no more than `most`. The words must hold no secrets any more."""
        request = SlowRequest(self.next_number, at_s, microseconds, shortened(words), address, name)
        self.next_number += 1
        self.requests.appendleft(request)
        while len(self.requests) > max_requests:
            self.requests.pop()

    def clear(self) -> None:
        """Forget all of them."""
        self.requests.clear()


def shortened(words: list[bytes]) -> list[bytes]:
    """As much of a request as is kept; the last of too many words says how many are missing."""
    if len(words) <= WORDS_MAX:
        return [shortened_word(word) for word in words]
    kept = [shortened_word(word) for word in words[: WORDS_MAX - 1]]
    return [*kept, b"... (%d more arguments)" % (len(words) - len(kept))]


def shortened_word(word: bytes) -> bytes:
    """As much of a word as is kept."""
    if len(word) <= WORD_BYTES_MAX:
        return word
    return word[:WORD_BYTES_MAX] + b"... (%d more bytes)" % (len(word) - WORD_BYTES_MAX)
