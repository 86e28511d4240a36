"""Batch: entries that are delivered together, and acknowledged, retried or failed together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, overload

from headrace.api.delivery import Delivery, Settler, checked_reason
from headrace.errors import UsageError

T = TypeVar("T")


class Batch(Sequence[Delivery[T]], Generic[T]):
    """Entries delivered to a consumer together: a sequence of Delivery objects.

    >>> for batch in consumer.batches(size=500, seconds=1):
    ...     database.insert_many(batch.values)

    The entries are in the order in which they became ready. That is the order of the stream, unless an entry
    was delivered again or waited for another one of its order key.

    Loops and handlers settle a batch automatically: see Consumer.batches(). To settle some of its entries in
    another way, pass them to ack(), retry() or fail() before that. If these methods are called several times
    for one entry, only the first call has an effect. Any thread may call them.
    """

    __slots__ = ("_entries", "_settler")

    def __init__(self, entries: Sequence[Delivery[T]], settler: Settler) -> None:
        self._entries = tuple(entries)
        self._settler = settler

    @property
    def values(self) -> list[T]:
        """The values that the stream's codec decodes, one for each entry.

        Raises:
            CodecError: if one of them cannot be decoded. If a handler raises that error, the entry of that
                value becomes a dead letter at once, and the others are retried.
        """
        return [entry.value for entry in self._entries]

    def ack(self, entries: Iterable[Delivery[T]] | None = None) -> None:
        """Acknowledge entries.

        Args:
            entries: entries of this batch; None for all that are not settled yet.

        Raises:
            UsageError: if one of them is not in this batch.
        """
        self._settler.ack(self._chosen(entries))

    def retry(
        self,
        entries: Iterable[Delivery[T]] | None = None,
        after: float | None = None,
        error: str = "retry() was called",
    ) -> None:
        """Deliver entries again later; after the group's max_deliveries they become dead letters instead.

        Args:
            entries: entries of this batch; None for all that are not settled yet.
            after: seconds to wait; None for the group's back-off.
            error: why, for the log and the dead letters.

        Raises:
            UsageError: if one of them is not in this batch, or `after` is not a number.
        """
        self._settler.retry(self._chosen(entries), after, error)

    def fail(self, entries: Iterable[Delivery[T]] | None = None, reason: str = "fail() was called") -> None:
        """Move entries to the dead letters now. If the group keeps none, acknowledge and log them.

        Args:
            entries: entries of this batch; None for all that are not settled yet.
            reason: why, for the log and the dead letters.

        Raises:
            UsageError: if one of them is not in this batch, or the reason is not text.
        """
        self._settler.fail(self._chosen(entries), checked_reason(reason))

    def record_failure(self, error: BaseException) -> None:
        """Retry all entries that are not settled yet after the back-off, because of this exception.

        If the exception is the CodecError of an entry's value, move that entry to the dead letters at once,
        unless the group keeps none or has no limit of deliveries.
        """
        self._settler.record_failure(self, error)

    def _chosen(self, entries: Iterable[Delivery[T]] | None) -> Sequence[Delivery[T]]:
        if entries is None:
            return self._entries
        if isinstance(entries, Delivery):
            raise UsageError(f"entries={entries!r}: must be several entries of the batch, such as [entry]")
        chosen = list(entries)
        ours = set(map(id, self._entries))
        for one in chosen:
            if id(one) not in ours:
                raise UsageError(f"{one!r} is not an entry of this batch")
        return chosen

    @overload
    def __getitem__(self, at: int) -> Delivery[T]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Delivery[T]]: ...

    def __getitem__(self, at: int | slice) -> Delivery[T] | Sequence[Delivery[T]]:
        return self._entries[at]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Delivery[T]]:
        return iter(self._entries)

    def __repr__(self) -> str:
        ends = f", {self._entries[0].id} to {self._entries[-1].id}" if self._entries else ""
        return f"Batch({len(self._entries)}{ends})"


DeliveryOrBatch: TypeAlias = Delivery[Any] | Batch[Any]  # what a handler gets
