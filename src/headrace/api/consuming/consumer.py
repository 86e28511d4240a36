"""A group's consumer: fetch, deliver, acknowledge, retry and release entries.

Consumer ─▶ Worker (worker.py) decides ─▶ ThreadDriver (thread_driver.py) or AsyncDriver performs
"""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from headrace.api.backend import Backend
from headrace.api.batch import Batch, DeliveryOrBatch
from headrace.api.codecs.arguments import decode_name, encode_name
from headrace.api.consuming.batching import BATCH_SECONDS_DEFAULT, BATCH_SIZE_DEFAULT, BatchSettings
from headrace.api.consuming.in_flight import Counters
from headrace.api.consuming.requests import ConsumerRequestBuilder
from headrace.api.consuming.thread_driver import ThreadDriver, iter_work
from headrace.api.consuming.worker import IN_FLIGHT_MAX, Worker
from headrace.api.delivery import Delivery
from headrace.api.group_gaps import GroupGapWatch
from headrace.api.stream_gaps import OnGap, StreamGap, checked_on_gap
from headrace.errors import UsageError

if TYPE_CHECKING:
    from headrace.api.group import Group

T = TypeVar("T")


class Consumer(Generic[T]):
    """A consumer of a group: `group.consumer("worker-1")`. The group's first consumer creates the group.

    >>> for entry in group.consumer("worker-1"):
    ...     send_invoice(entry.value)

    An entry is acknowledged when the loop asks for the next one. If the loop ends by `break`, an exception or
    the end of the process, the current entry stays pending. It is delivered again: to this consumer when it
    restarts, or to another one when the lease is over. Fetched entries that were not begun are released, and
    other consumers claim them within seconds.

    Every entry is handled at least once. It is handled twice after a crash between the end of the work and
    its acknowledgement, after a process stopped for longer than the lease, or when two running consumers have
    the same name. Acknowledgements are sent after 20 ms, before the loop waits, and at least every 256
    entries; during long work they are sent up to a second later. So make the work idempotent: `entry.id` is
    the same each time.

    Args:
        group: the group.
        name: the consumer's name; None: a generated one.
        fetch_count: entries to fetch at a time, up to 1024. None: as many as are handled in about a tenth of
            a second, from one to 512; for batches, their size.
        block: seconds without work after which the loop ends; 0: when no entry is left; default: never. A
            retry that waits for its back-off is not work: if it waits longer than `block`, the loop ends and
            the entry stays pending.
        concurrency: how many threads run() uses, or tasks in asyncio: this many entries are handled at the
            same time. A consumer holds up to 1024 entries, or `concurrency` entries if that is more. With
            batches, it holds up to `concurrency` + 1 batches if these have more than 1024 entries.
        ordered_by: a function of an entry that returns an order key. Entries with an equal key are handled
            one after the other in the order of the stream, also when one is retried. Then only one consumer
            of the group may run, because entries go to other consumers whatever their key is. `ordered_by` of
            Group has no such limit; it needs a Headrace server.
        on_gap: what happens if entries were removed before the group read them. `"warn"`: they are counted in
            `counters.skipped`, a StreamGap is added to `gaps`, and the logger `headrace.consumer` warns.
            `"raise"`: the loop or run() also ends with the StreamGap; each fetch then asks for the state of
            the group. The next loop continues with the entries that are left.

    Attributes:
        counters: what the consumer has done so far, see Counters.
        gaps: a StreamGap for each time that entries were found to be removed unread.

    Raises:
        UsageError: if an argument is invalid.
        NotSupported: if the group has `ordered_by`, and the server is not Headrace.
        CommandError: if the server rejects the group.
    """

    def __init__(
        self,
        group: Group[T],
        name: str | bytes | None = None,
        *,
        fetch_count: int | None = None,
        block: float = math.inf,
        concurrency: int = 1,
        ordered_by: Callable[[Delivery[T]], Any] | None = None,
        on_gap: OnGap = "warn",
    ) -> None:
        if name == "" or name == b"":
            raise UsageError("a consumer's name cannot be empty; omit it for a generated one")
        if fetch_count is not None and not (
            isinstance(fetch_count, int) and 1 <= fetch_count <= IN_FLIGHT_MAX
        ):
            raise UsageError(f"fetch_count: must be from 1 to {IN_FLIGHT_MAX} entries")
        if not (isinstance(concurrency, int) and concurrency >= 1):
            raise UsageError("concurrency: must be at least 1")
        if not (isinstance(block, int | float) and block >= 0):
            raise UsageError("block: must be seconds of at least 0; omit it for no limit")
        if ordered_by is not None and not callable(ordered_by):
            raise UsageError(
                f"ordered_by: must be a function of an entry, such as lambda entry: entry[{ordered_by!r}]"
            )
        checked_on_gap(on_gap)
        group.open()
        self.group = group
        self.has_generated_name = name is None
        self.name = generate_consumer_name() if name is None else decode_name(encode_name(name))
        self.concurrency = concurrency
        self.counters = Counters()
        self._gap_watch = GroupGapWatch(f"{group.stream.name} {group.name} {self.name}", on_gap)
        self.gaps: list[StreamGap] = self._gap_watch.found_gaps
        self._fetch_count = fetch_count
        self._block = block
        self._ordered_by = ordered_by
        self._worker: Worker | None = None  # of the running loop
        self._stopped = False

    def __repr__(self) -> str:
        return f"Consumer({self.name!r} of {self.group.name!r}, {self.group.stream!r})"

    @property
    def backend(self) -> Backend:
        """The backend that executes the requests."""
        return self.group.backend

    @property
    def stream_and_group_names(self) -> tuple[bytes, bytes]:
        """The keys of the stream and of the group."""
        return self.group.stream.key, self.group.key

    def create_worker(self, batches: BatchSettings | None = None) -> Worker:
        """Return the Worker of a new loop; call detach_worker() after it.

        batches: its deliveries are batches; None: single entries.

        Raises UsageError if a loop runs already.
        """
        if self._worker is not None:
            raise UsageError(f"{self!r} is running already: use concurrency= for more than one loop")
        group = self.group
        worker = Worker(
            ConsumerRequestBuilder(
                group.stream.key, group.key, encode_name(self.name), bool(group.policy.server_rule_arguments)
            ),
            group.policy,
            group.backend.now_ms,
            fetch_count=self._fetch_count,
            batches=batches,
            block=self._block,
            concurrency=self.concurrency,
            ordered_by=self._ordered_by or order_key_function(group.policy.ordered_by),
            codec=group.stream.codec,
            counters=self.counters,
            gaps=self._gap_watch,
        )
        self._worker = worker
        if self._stopped:
            worker.stop()
        return worker

    def detach_worker(self) -> None:
        """Detach the Worker of the loop that ended."""
        if self._worker is not None:
            self._worker.on_change = do_nothing
        self._worker = None

    def remove_if_name_generated(self) -> None:
        """Remove the consumer from the group if its name was generated, unless it has pending entries."""
        if self.has_generated_name:  # it is unique: no entry can become pending with it now
            with suppress(UsageError):  # it has pending entries
                self.group.remove_consumer(self.name)

    def stop(self) -> None:
        """End the loop. It may be called from any thread or a signal handler.

        Running handlers finish; no other entry is begun. The stop is permanent: a later loop ends at once.
        """
        self._stopped = True
        if (worker := self._worker) is not None:
            worker.stop()

    # Loops.

    def __iter__(self) -> Iterator[Delivery[T]]:
        """Iterate over the entries as they arrive."""
        yield from iter_work(self, None)

    def __aiter__(self) -> AsyncIterator[Delivery[T]]:
        """Iterate in asyncio: `async for entry in consumer`."""
        from headrace.api.consuming.async_consumer import iter_work

        return iter_work(self, None)

    def batches(self, size: int = BATCH_SIZE_DEFAULT, seconds: float = BATCH_SECONDS_DEFAULT) -> Batches[T]:
        """Iterate over batches of entries, with `for` or `async for`.

        >>> for batch in group.consumer("worker-1").batches(size=500, seconds=1):
        ...     database.insert_many(batch.values)

        All entries of a batch are acknowledged together when the loop asks for the next batch. If the loop
        ends by `break`, an exception or the end of the process, all of them stay pending and are delivered
        again: at least once. Their leases are renewed while the loop works on them. batch.ack(),
        batch.retry() and batch.fail() settle some of them in another way.

        A batch that fails is retried as a whole after the back-off. When one more failure would make an
        entry a dead letter, it is delivered in a batch of its own, so the others do not become dead letters
        because of it. With an order key, a batch has at most one entry of each key.

        Args:
            size: the maximum number of entries of a batch, up to 10,000.
            seconds: a batch that is not full is delivered this long after its first entry, or after `block`
                seconds if that is shorter.

        Raises:
            UsageError: if an argument is invalid.
        """
        return Batches(self, BatchSettings(size, seconds))

    @overload
    def handling(self, work: Delivery[T]) -> AbstractContextManager[Delivery[T]]: ...
    @overload
    def handling(self, work: Batch[T]) -> AbstractContextManager[Batch[T]]: ...

    def handling(self, work: Any) -> Any:
        """Acknowledge an entry or a batch at the end of a `with` block; log an exception and retry it later.

        >>> for entry in consumer:
        ...     with consumer.handling(entry):
        ...         send_invoice(entry.value)  # may raise: the loop continues

        Args:
            work: an entry or a batch that the consumer has delivered.

        Raises:
            UsageError: if the argument is not an entry or a batch that a consumer has delivered.
        """
        if not isinstance(work, Delivery | Batch):
            raise UsageError(f"work={work!r}: must be an entry or a batch that the consumer has delivered")
        return handling(work)

    def run(self, function: Callable[[Delivery[T]], Any]) -> None:
        """Call `function` with each entry, `concurrency` at a time, until stop().

        An exception of the function is a failure of the entry. run() returns when all begun entries are
        finished and acknowledged, and the others are released.

        Raises:
            UsageError: if the function returns something that must be awaited, or a generator.
            HeadraceError: the error that ended the loop, such as NoSuchGroup.
        """
        with ThreadDriver(self) as driver:
            driver.run(function, self.concurrency)


class Batches(Generic[T]):
    """The batches of a consumer, for `for` and `async for`; see Consumer.batches()."""

    def __init__(self, consumer: Consumer[T], settings: BatchSettings) -> None:
        self._consumer = consumer
        self._settings = settings

    def __iter__(self) -> Iterator[Batch[T]]:
        """Iterate over the batches as they become due."""
        return iter_work(self._consumer, self._settings)

    def __aiter__(self) -> AsyncIterator[Batch[T]]:
        """Iterate in asyncio: `async for batch in consumer.batches()`."""
        from headrace.api.consuming.async_consumer import iter_work

        return iter_work(self._consumer, self._settings)

    def __repr__(self) -> str:
        return f"Batches(size={self._settings.size}, seconds={self._settings.seconds}, {self._consumer!r})"


@contextmanager
def handling(work: DeliveryOrBatch) -> Iterator[DeliveryOrBatch]:
    """Acknowledge an entry or a batch at the end of a `with` block, or record its failure."""
    try:
        yield work
    except Exception as error:
        work.record_failure(error)
    else:
        work.ack()


def do_nothing() -> None:
    """Ignore a change."""


def order_key_function(field: bytes | None) -> Callable[[Delivery[Any]], Any] | None:
    """Return a function that returns an entry's order key for the rule ORDERED-BY; None without a field.

    The key of an entry that lacks the field is its own ID.
    """
    if field is None:
        return None

    def key(delivery: Delivery[Any]) -> Any:
        flat = delivery.flat_fields
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            if name == field:
                return value
        return delivery.id  # no other entry has it: it is not ordered

    return key


def generate_consumer_name() -> str:
    """Return a unique name that shows the host and the process."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
