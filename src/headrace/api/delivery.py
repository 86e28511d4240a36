"""An entry delivered to a consumer: its delivery count, and how to settle it.

READY ──▶ RUNNING ──ack──▶ DONE            QUEUED waits for an entry of the same order key,
  ▲ QUEUED   │ └──fail───▶ GIVEN_UP ▶ DONE  LOST was claimed by another consumer meanwhile
  └─ WAITING ◀──retry
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from headrace.api.codecs.codec import Codec
from headrace.api.entry import Entry, fields_from_reply
from headrace.api.stream_id import id_from_reply
from headrace.errors import UsageError

T = TypeVar("T")

WAITING = 0  # for the end of its back-off, or to be begun; its fields may still be in the stream
QUEUED = 1  # after another entry of its order key
READY = 2
RUNNING = 3
GIVEN_UP = 4  # on its way to the dead letters
DONE = 5
LOST = 6  # out of hand, and still pending

UNKNOWN_DELIVERIES = -1  # the count of an entry that waits, and was not looked up yet


class Settler(Protocol):
    """Receives the result of a delivery, or of several at once."""

    def ack(self, work: Delivery[Any] | Sequence[Delivery[Any]]) -> None:
        """Record that the entries are done."""

    def retry(self, work: Delivery[Any] | Sequence[Delivery[Any]], after: float | None, error: str) -> None:
        """Record that the entries are to be delivered again."""

    def record_failure(self, work: Delivery[Any] | Sequence[Delivery[Any]], error: BaseException) -> None:
        """Record that the handler raised."""

    def fail(self, work: Delivery[Any] | Sequence[Delivery[Any]], reason: str) -> None:
        """Record that the entries can never be handled."""


def checked_reason(reason: str) -> str:
    """Return the reason. Raises UsageError if it is not text."""
    if not isinstance(reason, str):
        raise UsageError(f"fail(): the reason must be text, not {reason!r}; pass str(...)")
    return reason


class Delivery(Entry[T]):
    """An Entry delivered to a consumer, with ack(), retry() and fail().

    Loops over a consumer, and handlers, settle the delivery automatically: see Consumer. Only the first call
    of ack(), retry() or fail() has an effect. Any thread may call them.

    Attributes:
        times_delivered: 1 for the first time; retries and claims count, renewed leases do not.
        lost: True if the entry no longer belongs to this consumer: its lease ran out and another consumer
            claimed it, so it is handled twice; or it was deleted, or acknowledged by another client.
    """

    __slots__ = (
        "_settler",
        "due_ms",
        "error",
        "flat_fields",
        "lease_renewed_ms",
        "lost",
        "order_key",
        "raw_id",
        "started_ms",
        "state",
        "times_delivered",
    )

    times_delivered: int
    lost: bool

    # For the worker, not for users.
    raw_id: bytes  # the ID as the server writes it
    flat_fields: list[bytes]  # names and values in turns, as they were added
    state: int
    lease_renewed_ms: int  # ms, when the server last heard that this consumer has it
    due_ms: int  # ms, of one that waits
    started_ms: int  # ms, of one that runs
    order_key: Any  # what ordered_by says, None without it
    error: str  # of the last failure

    def __init__(
        self,
        raw_id: bytes,
        flat_fields: list[bytes],
        now: int,
        settler: Settler,
        codec: Codec[T] | None = None,
    ) -> None:
        super().__init__(id_from_reply(raw_id), fields_from_reply(flat_fields), codec)
        self.raw_id = raw_id
        self.flat_fields = flat_fields
        self.lease_renewed_ms = now
        self.state = READY
        self.times_delivered = 1
        self.lost = False
        self.order_key = None
        self.error = ""
        self.due_ms = 0
        self.started_ms = 0
        self._settler = settler

    def ack(self) -> None:
        """Acknowledge the entry.

        Acknowledgements are sent together: after 20 ms, or before the consumer waits. If the next handler is
        running by then, they are sent up to a second later.
        """
        self._settler.ack(self)

    def retry(self, after: float | None = None, error: str = "retry() was called") -> None:
        """Deliver the entry again later; after the group's max_deliveries it becomes a dead letter instead.

        Args:
            after: seconds to wait; None for the group's back-off.
            error: why, for the log and the dead letter.

        Raises:
            UsageError: if `after` is not a number.
        """
        self._settler.retry(self, after, error)

    def fail(self, reason: str = "fail() was called") -> None:
        """Move the entry to the dead letters now. If the group keeps none, acknowledge and log it.

        Args:
            reason: why, for the log and the dead letter.

        Raises:
            UsageError: if the reason is not text.
        """
        self._settler.fail(self, checked_reason(reason))

    def record_failure(self, error: BaseException) -> None:
        """Retry after the back-off, because of this exception; dead letters keep its text.

        If the exception is the CodecError of this entry's value, move the entry to the dead letters at once,
        unless the group keeps none or has no limit of deliveries.
        """
        self._settler.record_failure(self, error)

    def reset_for_redelivery(self, flat_fields: list[bytes], deliveries: int, now: int) -> None:
        """Update the object for another delivery; forget the decoded value."""
        self.flat_fields = flat_fields
        self.fields = fields_from_reply(flat_fields)
        self.times_delivered = deliveries
        self.lease_renewed_ms = now
        if hasattr(self, "_value"):
            del self._value
