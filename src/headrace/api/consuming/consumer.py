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
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.api.backend import Stop
from headrace.api.codecs.arguments import decode_name, encode_name
from headrace.api.consuming.actions import FINISHED, Action, BlockingRead, Idle, SendRequests
from headrace.api.consuming.in_flight import Counters, log
from headrace.api.consuming.lease_renewer import LeaseRenewer
from headrace.api.consuming.requests import Requests
from headrace.api.consuming.runner import is_unawaited, perform, unawaited_handler_error, wait
from headrace.api.consuming.worker import IN_FLIGHT_MAX, Worker
from headrace.api.delivery import Delivery
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
        batch: entries to fetch at a time, up to 1024. None: as many as are handled in about a tenth of a
            second, from one to 512.
        block: seconds without anything to do after which the loop ends; 0: when no entry is left; the default
            is never. Retries that wait for their back-off are not something to do: the loop ends before them
            if they wait longer, and the entries stay pending.
        concurrency: how many threads run() uses, or tasks in asyncio: so many entries are handled at the same
            time. A consumer holds up to 1024 entries, or `concurrency` if that is more.
        ordered_by: a function of an entry that returns an order key. Entries with an equal key are handled
            one after the other in the order of the stream, also when one is retried. Then only one consumer
            of the group may run, because others get their share of the entries regardless. The argument of
            the same name of Group has no such limit, on a Headrace server.

    Attributes:
        counters: what it has done so far, see Counters.

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
        batch: int | None = None,
        block: float = math.inf,
        concurrency: int = 1,
        ordered_by: Callable[[Delivery[T]], Any] | None = None,
    ) -> None:
        if name == "" or name == b"":
            raise UsageError("a consumer's name cannot be empty; omit it for a generated one")
        if batch is not None and not (isinstance(batch, int) and 1 <= batch <= IN_FLIGHT_MAX):
            raise UsageError(f"batch: must be from 1 to {IN_FLIGHT_MAX} entries")
        if not (isinstance(concurrency, int) and concurrency >= 1):
            raise UsageError("concurrency: must be at least 1")
        if not (isinstance(block, int | float) and block >= 0):
            raise UsageError("block: must be seconds of at least 0; omit it for no limit")
        if ordered_by is not None and not callable(ordered_by):
            raise UsageError(
                f"ordered_by: must be a function of an entry, such as lambda entry: entry[{ordered_by!r}]"
            )
        group.open()
        self.group = group
        self.has_generated_name = name is None
        self.name = generate_consumer_name() if name is None else decode_name(encode_name(name))
        self.concurrency = concurrency
        self.counters = Counters()
        self._batch = batch
        self._block = block
        self._ordered_by = ordered_by
        self._worker: Worker | None = None  # of the running loop
        self._stopped = False

    def __repr__(self) -> str:
        return f"Consumer({self.name!r} of {self.group.name!r}, {self.group.stream!r})"

    def start_worker(self) -> Worker:
        """Return the Worker of a new loop; call finish_worker() after it.

        Raises UsageError if a loop runs already.
        """
        if self._worker is not None:
            raise UsageError(f"{self!r} is running already: use concurrency= for more than one loop")
        group = self.group
        worker = Worker(
            Requests(group.stream.key, group.key, encode_name(self.name), bool(group.policy.server_rules)),
            group.policy,
            group.backend.now_ms,
            batch=self._batch,
            block=self._block,
            concurrency=self.concurrency,
            ordered_by=self._ordered_by or key_of_rule(group.policy.ordered_by),
            codec=group.stream.codec,
            counters=self.counters,
        )
        self._worker = worker
        if self._stopped:
            worker.stop()
        return worker

    def finish_worker(self) -> None:
        """Forget the Worker of the loop that ended, and have it forget the loop."""
        if self._worker is not None:
            self._worker.on_change = do_nothing
        self._worker = None

    def stop(self) -> None:
        """End the loop, from any thread or a signal handler. Running handlers finish; no other entry is
        begun.

        It is permanent: a later loop ends at once.
        """
        self._stopped = True
        if (worker := self._worker) is not None:
            worker.stop()

    # Loops.

    def __iter__(self) -> Iterator[Delivery[T]]:
        """Iterate over the entries as they arrive."""
        with ThreadDriver(self) as driver:
            while (delivery := driver.next()) is not None:
                try:
                    yield delivery
                except BaseException:  # GeneratorExit: the loop was left
                    driver.worker.abandon(delivery)
                    raise
                driver.worker.ack(delivery)

    def __aiter__(self) -> AsyncIterator[Delivery[T]]:
        """Iterate in asyncio: `async for entry in consumer`."""
        from headrace.api.consuming.async_consumer import entries

        return entries(self)

    @contextmanager
    def handling(self, delivery: Delivery[T]) -> Iterator[Delivery[T]]:
        """Acknowledge the entry at the end of a `with` block; log an exception and retry the entry later.

        >>> for entry in consumer:
        ...     with consumer.handling(entry):
        ...         send_invoice(entry.value)  # may raise: the loop continues

        Raises:
            UsageError: if the argument is not an entry that a consumer has delivered.
        """
        if not isinstance(delivery, Delivery):
            raise UsageError(f"delivery={delivery!r}: must be an entry that the consumer has delivered")
        try:
            yield delivery
        except Exception as error:
            delivery.record_failure(error)
        else:
            delivery.ack()

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


class ThreadDriver:
    """Performs the actions of a Worker, in as many threads as call next()."""

    def __init__(self, consumer: Consumer[Any]) -> None:
        self.worker = consumer.start_worker()
        self._consumer = consumer
        self._backend = consumer.group.backend
        self._waits: list[Stop] = []  # of waiting threads
        self._error: BaseException | None = None
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
        for stop in self._waits[:]:
            stop.set()

    def next(self) -> Delivery[Any] | None:
        """Wait for the next entry to handle and return it; None when the loop should end."""
        while True:
            action = self.worker.next()
            if isinstance(action, Delivery):
                return action
            if action is FINISHED:
                return None
            self._do(action)

    def _do(self, action: Action) -> None:
        """Perform an action that is not a delivery."""
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

    def run(self, function: Callable[[Delivery[Any]], Any], concurrency: int) -> None:
        """Handle entries in this thread and others until the loop should end.

        Raises the error that ended one of them.
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

    def _handle(self, function: Callable[[Delivery[Any]], Any]) -> None:
        worker = self.worker
        try:
            while (delivery := self.next()) is not None:
                try:
                    result = function(delivery)
                except Exception as error:
                    worker.record_failure(delivery, error)
                except BaseException:
                    worker.abandon(delivery)
                    raise
                else:
                    if result is not None and is_unawaited(result):
                        worker.abandon(delivery)
                        raise unawaited_handler_error(function, result)
                    worker.ack(delivery)
        except BaseException as error:
            self._error = self._error or error
            worker.stop()
