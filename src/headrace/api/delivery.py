"""An entry in a consumer's hand: how often it was delivered, and how to be done with it.

READY ──▶ RUNNING ──ack──▶ DONE            one after the other; HELD waits for an entry of the same key,
  ▲  HELD    │ └──fail───▶ DYING ──▶ DONE  LOST is whatever another consumer took over meanwhile
  └─ WAITING ◀──retry
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from headrace.api.codecs.codec import Codec
from headrace.api.entry import Entry, fields_from
from headrace.api.stream_id import from_reply

T = TypeVar("T")

WAITING = 0  # for the end of its back-off, or to be begun; its fields may still be in the stream
HELD = 1  # behind another entry with its key
READY = 2
RUNNING = 3
DYING = 4  # on its way to the dead letters
DONE = 5
LOST = 6  # out of hand, and still pending


class Settling(Protocol):
    """Who hears of it when a delivery is settled by hand."""

    def ack(self, delivery: Any) -> None:
        """It is done."""

    def retry(self, delivery: Any, after: float | None, error: str) -> None:
        """It is to be delivered again."""

    def failed(self, delivery: Any, error: BaseException) -> None:
        """Its handler raised."""

    def fail(self, delivery: Any, reason: str) -> None:
        """It never will be done."""


class Delivery(Entry[T]):
    """An entry as a group's consumer got it: all that an Entry has, and ack(), retry() and fail().

    Whoever iterates a consumer, or has a handler, need not call any of these: see Consumer. The first of them
    counts, later ones do nothing. They may be called from any thread.

    times_delivered   1 for the first time; a retry and a takeover count, a renewed lease does not
    lost              True when the lease ran out and another consumer took the entry: it is handled twice
    """

    __slots__ = (
        "_settling",
        "begun",
        "due",
        "error",
        "flat",
        "key",
        "lane",
        "lost",
        "seen",
        "state",
        "times_delivered",
    )

    times_delivered: int
    lost: bool

    # For the worker, not for users.
    key: bytes  # the ID as the server writes it
    flat: list[bytes]  # names and values in turns, as they were added
    state: int
    seen: int  # ms, when the server last heard that this consumer has it
    due: int  # ms, of one that waits
    begun: int  # ms, of one that runs
    lane: Any  # what ordered_by says, None without it
    error: str  # of the last failure

    def __init__(
        self, key: bytes, flat: list[bytes], now: int, settling: Settling, codec: Codec[T] | None = None
    ) -> None:
        super().__init__(from_reply(key), fields_from(flat), codec)
        self.key = key
        self.flat = flat
        self.seen = now
        self.state = READY
        self.times_delivered = 1
        self.lost = False
        self.lane = None
        self.error = ""
        self.due = 0
        self.begun = 0
        self._settling = settling

    def ack(self) -> None:
        """Done. The server is told so before the consumer next waits, or sooner."""
        self._settling.ack(self)

    def retry(self, after: float | None = None, error: str = "retry() was called") -> None:
        """Not done: deliver it again, `after` seconds from now, None for the group's back-off.

        After the group's max_deliveries it goes to the dead letters instead.
        """
        self._settling.retry(self, after, error)

    def fail(self, reason: str = "fail() was called") -> None:
        """It never will be done: to the dead letters, now."""
        self._settling.fail(self, reason)

    def failed(self, error: BaseException) -> None:
        """As retry(), for an exception: dead letters keep its text."""
        self._settling.failed(self, error)

    def again(self, flat: list[bytes], deliveries: int, now: int) -> None:
        """It was delivered once more. What a handler made of the value before is forgotten."""
        self.flat = flat
        self.fields = fields_from(flat)
        self.times_delivered = deliveries
        self.seen = now
        if hasattr(self, "_value"):
            del self._value
