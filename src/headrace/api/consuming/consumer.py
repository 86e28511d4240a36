"""A group's consumer in threads: fetch, deliver, acknowledge, retry and release entries.

    for entry in consumer:        the thread of the loop does everything; another one renews the leases
    consumer.run(function)        `concurrency` threads each perform the next action (see worker.py)

The Worker decides; this module executes its decisions.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from headrace.api.backend import Stop
from headrace.api.batch import Batch, Work
from headrace.api.codecs.arguments import decode_name, encode_name
from headrace.api.consuming.actions import FINISHED, Action, BlockingRead, Idle, SendRequests
from headrace.api.consuming.batching import BATCH_SECONDS_DEFAULT, BATCH_SIZE_DEFAULT, BatchSettings
from headrace.api.consuming.in_flight import Counters, log
from headrace.api.consuming.lease_renewer import LeaseRenewer
from headrace.api.consuming.requests import Requests
from headrace.api.consuming.runner import is_unawaited, perform, unawaited_handler_error, wait
from headrace.api.consuming.worker import IN_FLIGHT_MAX, Worker
from headrace.api.delivery import Delivery
from headrace.api.group_gaps import GroupGapWatch
from headrace.api.stream_gaps import OnGap, StreamGap, check_on_gap
from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    from headrace.api.group import Group

T = TypeVar("T")


class Consumer(Generic[T]):
    """A consumer of a group: `group.consumer("worker-1")`. The group's first consumer creates the group.

    >>> for entry in group.consumer("worker-1"):
    ...     send_invoice(entry.value)

    An entry is acknowledged when the loop asks for the next one. If `break`, an exception or the end of the
    process leaves the loop, the current entry stays pending. It is delivered again: to this consumer when it
    restarts, or to another one when the lease is over. Fetched entries that were not begun are released, and
    other consumers claim them within seconds.

    Every entry is handled at least once. It is handled twice after a crash between the end of the work and
    its acknowledgement, after a process stopped for longer than the lease, or when two running consumers have
    the same name. An acknowledgement is sent after 20 ms, before the loop waits, and at least every 256
    entries. So make the work idempotent: `entry.id` is the same each time.

    Args:
        group: the group.
        name: the consumer's name; None: a generated one.
        fetch_count: entries to fetch at a time, up to 1024. None: as many as are handled in about a tenth of
            a second, from one to 512; for batches, their size.
        block: seconds without work after which the loop ends; 0: when no entry is left; default: never. A
            retry that waits for its back-off is not work: if it waits longer than `block`, the loop ends and
            the entry stays pending.
        concurrency: how many threads run() uses, or tasks in asyncio: so many entries are handled at the same
            time. A consumer holds up to 1024 entries, or `concurrency` if that is more.
        ordered_by: a function of an entry that returns an order key. Entries with an equal key are handled
            one after the other in the order of the stream, also when one is retried. Then only one consumer
            of the group may run, because entries go to other consumers whatever their key is. `ordered_by` of
            Group has no such limit; it needs a Headrace server.
        on_gap: what happens if entries were removed before the group read them. `"warn"`: they are counted in
            `counters.skipped`, a StreamGap is added to `gaps`, and the logger `headrace.consumer` warns.
            `"raise"`: the loop or run() also ends with the StreamGap; each fetch then asks for the state of
            the group. The next loop continues with the entries that are left.

    Attributes:
        counters: what it has done so far, see Counters.
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
        check_on_gap(on_gap)
        group.open()
        self.group = group
        self.has_generated_name = name is None
        self.name = generate_consumer_name() if name is None else decode_name(encode_name(name))
        self.concurrency = concurrency
        self.counters = Counters()
        self._gap_watch = GroupGapWatch(f"{group.stream.name} {group.name} {self.name}", on_gap)
        self.gaps: list[StreamGap] = self._gap_watch.found
        self._fetch_count = fetch_count
        self._block = block
        self._ordered_by = ordered_by
        self._worker: Worker | None = None  # of the running loop
        self._stopped = False

    def __repr__(self) -> str:
        return f"Consumer({self.name!r} of {self.group.name!r}, {self.group.stream!r})"

    def start_worker(self, batches: BatchSettings | None = None) -> Worker:
        """Return the Worker of a new loop; call finish_worker() after it.

        batches: its deliveries are batches; None: single entries.

        Raises UsageError if a loop runs already.
        """
        if self._worker is not None:
            raise UsageError(f"{self!r} is running already: use concurrency= for more than one loop")
        group = self.group
        worker = Worker(
            Requests(group.stream.key, group.key, encode_name(self.name), bool(group.policy.server_rules)),
            group.policy,
            group.backend.now_ms,
            fetch_count=self._fetch_count,
            batches=batches,
            block=self._block,
            concurrency=self.concurrency,
            ordered_by=self._ordered_by or key_of_rule(group.policy.ordered_by),
            codec=group.stream.codec,
            counters=self.counters,
            gaps=self._gap_watch,
        )
        self._worker = worker
        if self._stopped:
            worker.stop()
        return worker

    def finish_worker(self) -> None:
        """Detach the Worker of the loop that ended."""
        if self._worker is not None:
            self._worker.on_change = do_nothing
        self._worker = None

    def stop(self) -> None:
        """End the loop. It may be called from any thread or a signal handler.

        Running handlers finish; no other entry is begun. It is permanent: a later loop ends at once.
        """
        self._stopped = True
        if (worker := self._worker) is not None:
            worker.stop()

    # Loops.

    def __iter__(self) -> Iterator[Delivery[T]]:
        """Iterate over the entries as they arrive."""
        yield from works(self, None)

    def __aiter__(self) -> AsyncIterator[Delivery[T]]:
        """Iterate in asyncio: `async for entry in consumer`."""
        from headrace.api.consuming.async_consumer import works

        return works(self, None)

    def batches(self, size: int = BATCH_SIZE_DEFAULT, seconds: float = BATCH_SECONDS_DEFAULT) -> Batches[T]:
        """Iterate over batches of entries, with `for` or `async for`.

        >>> for batch in group.consumer("worker-1").batches(size=500, seconds=1):
        ...     database.insert_many(batch.values)

        All entries of a batch are acknowledged together when the loop asks for the next one. If `break`, an
        exception or the end of the process leaves the loop, all of them stay pending and are delivered
        again: at least once. Their leases are renewed while the loop works on them. batch.ack(),
        batch.retry() and batch.fail() settle some of them in another way.

        A batch that fails is retried as a whole after the back-off. The last delivery before an entry would
        become a dead letter is one in a batch of its own, so that one bad entry does not take the others
        with it. With an order key, a batch has at most one entry of each key.

        Args:
            size: the most entries of a batch, up to 10,000.
            seconds: how long after its first entry a batch is delivered even if it is not full; `block`, if
                that is shorter.

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

        An exception of the function is a failure of the entry. This returns when all begun entries are
        finished and acknowledged, and the others released.

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
        return works(self._consumer, self._settings)

    def __aiter__(self) -> AsyncIterator[Batch[T]]:
        """Iterate in asyncio: `async for batch in consumer.batches()`."""
        from headrace.api.consuming.async_consumer import works

        return works(self._consumer, self._settings)

    def __repr__(self) -> str:
        return f"Batches(size={self._settings.size}, seconds={self._settings.seconds}, {self._consumer!r})"


def works(consumer: Consumer[Any], batches: BatchSettings | None) -> Iterator[Any]:
    """Iterate over entries or batches; each is acknowledged when the next one is requested."""
    with ThreadDriver(consumer, batches) as driver:
        while (work := driver.next()) is not None:
            try:
                yield work
            except BaseException:  # GeneratorExit: the loop was left
                driver.worker.abandon(work)
                raise
            driver.worker.ack(work)


@contextmanager
def handling(work: Work) -> Iterator[Work]:
    """See Consumer.handling()."""
    try:
        yield work
    except Exception as error:
        work.record_failure(error)
    else:
        work.ack()


def do_nothing() -> None:
    """Ignore a change."""


def key_of_rule(field: bytes | None) -> Callable[[Delivery[Any]], Any] | None:
    """Return a function that returns the order key of an entry for the rule ORDERED-BY; None without it."""
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


def is_failure(error: BaseException) -> bool:
    """Return whether an error of a handler in a thread is a failure of its entry.

    A thread cannot be cancelled, so CancelledError is one, too. asyncio is only imported if it may be that.
    """
    if isinstance(error, Exception):
        return True
    from asyncio import CancelledError

    return isinstance(error, CancelledError)


class ThreadDriver:
    """Performs the actions of a Worker, in as many threads as call next()."""

    def __init__(self, consumer: Consumer[Any], batches: BatchSettings | None = None) -> None:
        self.worker = consumer.start_worker(batches)
        self._consumer = consumer
        self._backend = consumer.group.backend
        self._waits: list[Stop] = []  # of waiting threads
        self._error: BaseException | None = None
        self._settling = threading.local()  # .now: this thread settles, and looks for the next action itself
        self._lease_renewer = LeaseRenewer(self._backend, self.worker)
        self.worker.on_change = self._wake

    def __enter__(self) -> ThreadDriver:
        self._lease_renewer.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Acknowledge and release entries. Errors here are only logged."""
        try:
            self.worker.stop()
            self._finish()
            if self._consumer.has_generated_name:  # it is unique: no entry can become pending with it now
                with suppress(UsageError):  # it has pending entries
                    self._consumer.group.remove_consumer(self._consumer.name)
        except HeadraceError as late:
            log.warning("%s: stopped, but could not release its entries: %s", self.worker, late)
        finally:
            self._lease_renewer.stop()
            self._consumer.finish_worker()

    def _finish(self) -> None:
        while (action := self.worker.next()) is not FINISHED:
            self._do(action)

    def _wake(self) -> None:
        if getattr(self._settling, "now", False):
            return
        for stop in self._waits[:]:
            stop.set()

    def settle(self, how: Callable[..., None], *arguments: Any) -> None:
        """Report a result to the Worker by how(*arguments).

        Other threads are not woken, because this one asks for the next action.
        """
        self._settling.now = True
        try:
            how(*arguments)
        finally:
            self._settling.now = False

    def next(self) -> Work | None:
        """Wait for the next entry or batch and return it; None when the loop should end."""
        while True:
            action = self.worker.next()
            if isinstance(action, Delivery | Batch):
                return action
            if action is FINISHED:
                return None
            self._do(action)

    def _do(self, action: Action) -> None:
        """Perform an action other than a delivery."""
        if isinstance(action, SendRequests):
            perform(self._backend, self.worker, action)
            return
        assert isinstance(action, BlockingRead | Idle)
        stop = Stop()
        self._waits.append(stop)
        try:
            if self.worker.revision != action.revision:  # between the decision and now
                stop.set()
            wait(self._backend, self.worker, action, stop)
        finally:
            self._waits.remove(stop)

    # Threads.

    def run(self, function: Callable[[Any], Any], concurrency: int) -> None:
        """Handle entries or batches in `concurrency` threads, this one among them, until the consumer stops.

        Raises the first error that ended a thread.
        """
        threads = [
            threading.Thread(target=self._handle, args=(function,), name=f"headrace {self.worker} {n}")
            for n in range(1, concurrency)
        ]
        for thread in threads:
            thread.start()
        try:
            self._handle(function)
        finally:
            self.worker.stop()
            for thread in threads:
                thread.join()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame: they would be a reference cycle

    def _handle(self, function: Callable[[Any], Any]) -> None:
        worker = self.worker
        try:
            while (work := self.next()) is not None:
                try:
                    result = function(work)
                except BaseException as error:
                    if is_failure(error):
                        self.settle(worker.record_failure, work, error)
                    else:
                        worker.abandon(work)
                        raise
                else:
                    if result is not None and is_unawaited(result):
                        worker.abandon(work)
                        raise unawaited_handler_error(function, result)
                    self.settle(worker.ack, work)
        except BaseException as error:
            self._error = self._error or error
            worker.stop()
