"""A group's consumer in threads: the loop that fetches, hands out, acknowledges, tries again and gives back.

    for entry in consumer:        the loop's thread does everything; another renews the leases
    consumer.run(function)        `concurrency` threads do the same, each whatever is next (see worker.py)

What is decided is the Worker's; here it is carried out.
"""

from __future__ import annotations

import inspect
import math
import os
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.api.backend import Stop
from headrace.api.codecs.arguments import name_of, shown
from headrace.api.consuming.actions import FINISHED, Ask, Idle, Read, Step
from headrace.api.consuming.in_flight import Counters, log
from headrace.api.consuming.lease_renewer import Keeper
from headrace.api.consuming.requests import Requests
from headrace.api.consuming.runner import perform, wait
from headrace.api.consuming.worker import IN_HAND_MAX, Worker
from headrace.api.delivery import Delivery
from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    from headrace.api.group import Group

T = TypeVar("T")


class Consumer(Generic[T]):
    """One name among those that share the entries of a group: `group.consumer("worker-1")`.

    >>> for entry in group.consumer("worker-1"):
    ...     send_invoice(entry.value)

    An entry is acknowledged when the loop asks for the next one. When the loop is left by `break`, by an
    exception or with the process, the entry that it was at is not: it stays pending, and is delivered again,
    to this consumer when it begins anew or to another when the lease is over. What was fetched and not begun
    is given back, and others take it within seconds.

    Every entry is handled at least once. Twice it is after a crash between the end of the work and its
    acknowledgement (which is sent after 20 ms, before the loop waits, and at least every 256 entries), after
    the process stood still for longer than the lease, or when two consumers that run have the same name. So
    let what you do with an entry be such that twice does no harm; `entry.id` is the same each time.

    batch        entries to fetch at a time; None: as many as are handled in about a tenth of a second, from
                 one on, at most 512
    block        seconds without anything to do after which the loop ends: 0 when nothing is there; by default
                 it never does
    concurrency  how many threads run(), or tasks, at the same time
    ordered_by   a function of an entry: those for which it returns the same are handled one after the other,
                 in the order of the stream, also when one is tried again. Only one consumer of a group may
                 run then, for others take their share of the entries regardless.

    counters     what it has done so far
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
            raise UsageError("a consumer's name cannot be empty; without one it gets its own")
        if batch is not None and not (isinstance(batch, int) and 1 <= batch <= IN_HAND_MAX):
            raise UsageError(f"batch: from 1 to {IN_HAND_MAX} entries")
        if not (isinstance(concurrency, int) and concurrency >= 1):
            raise UsageError("concurrency: how many entries at the same time, at least 1")
        if not (isinstance(block, int | float) and block >= 0):
            raise UsageError("block: 0 seconds or more; without it, for ever")
        if ordered_by is not None and not callable(ordered_by):
            raise UsageError(
                f"ordered_by: a function of an entry, such as lambda entry: entry[{ordered_by!r}]"
            )
        self.group = group
        self.nameless = name is None
        self.name = name_of_its_own() if name is None else shown(name_of(name))
        self.concurrency = concurrency
        self.counters = Counters()
        self._batch = batch
        self._block = block
        self._ordered_by = ordered_by
        self._worker: Worker | None = None  # of the loop that is running
        self._stopped = False

    def __repr__(self) -> str:
        return f"Consumer({self.name!r} of {self.group.name!r}, {self.group.stream!r})"

    def begin(self) -> Worker:
        """The decisions of a loop, for whoever drives one; end() when it is over. UsageError if one runs."""
        if self._worker is not None:
            raise UsageError(f"{self!r} is at work already: one loop at a time; for more, concurrency=")
        group = self.group
        worker = Worker(
            Requests(group.stream.key, group.key, name_of(self.name)),
            group.policy,
            group.link.now_ms,
            batch=self._batch,
            block=self._block,
            concurrency=self.concurrency,
            ordered_by=self._ordered_by,
            codec=group.stream.codec,
            counters=self.counters,
        )
        self._worker = worker
        if self._stopped:
            worker.stop()
        return worker

    def end(self) -> None:
        """The loop is over."""
        self._worker = None

    def stop(self) -> None:
        """Have the loop end, from any thread or a signal handler: what runs is finished, nothing is begun.

        It is for good: another loop ends at once.
        """
        self._stopped = True
        if (worker := self._worker) is not None:
            worker.stop()

    # Loops.

    def __iter__(self) -> Iterator[Delivery[T]]:
        """The entries, as they come."""
        with Driver(self) as driver:
            while (delivery := driver.next()) is not None:
                try:
                    yield delivery
                except BaseException:  # GeneratorExit: the loop was left
                    driver.worker.leave(delivery)
                    raise
                driver.worker.ack(delivery)

    def __aiter__(self) -> AsyncIterator[Delivery[T]]:
        """The same in asyncio: `async for entry in consumer`."""
        made: AsyncIterator[Delivery[T]] = import_module("headrace.api.consuming.async_consumer").entries(
            self
        )
        return made

    @contextmanager
    def handling(self, delivery: Delivery[T]) -> Iterator[Delivery[T]]:
        """Within a loop: acknowledge at the end, and if it is an exception, log it and try again later.

        >>> for entry in consumer:
        ...     with consumer.handling(entry):
        ...         send_invoice(entry.value)  # may raise: the loop goes on
        """
        try:
            yield delivery
        except Exception as error:
            delivery.failed(error)
        else:
            delivery.ack()

    def run(self, function: Callable[[Delivery[T]], Any]) -> None:
        """Call function with each entry, `concurrency` at a time, until stop(). An exception is a failure.

        Returns when all that was begun is finished, acknowledged, and the rest given back.
        """
        with Driver(self) as driver:
            driver.run(function, self.concurrency)


def name_of_its_own() -> str:
    """A name that no other consumer has, and that tells where it runs."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def unbegun(result: object) -> bool:
    """Whether a function that has returned this has yet to do what it is for."""
    return inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)


def not_handled(function: object, result: object) -> UsageError:
    """What to raise then."""
    name = getattr(function, "__name__", repr(function))
    return UsageError(
        f"{name} has only returned a {type(result).__name__}, and the entry is not handled: what is"
        " asynchronous is to be awaited, as run_async() does, and a handler has no `yield`"
    )


class Driver:
    """Carries out what a Worker wants, in as many threads as call next()."""

    def __init__(self, consumer: Consumer[Any]) -> None:
        self.worker = consumer.begin()
        self._consumer = consumer
        self._link = consumer.group.link
        self._waits: list[Stop] = []  # of threads that wait
        self._error: BaseException | None = None
        self._keeper = Keeper(self._link, self.worker)
        self.worker.on_change = self._wake

    def __enter__(self) -> Driver:
        self._keeper.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Acknowledge and give back; an error on the way out is only logged if there was one before."""
        try:
            self.worker.stop()
            self._finish()
            if self._consumer.nameless:  # nobody else has that name, so nothing becomes pending with it now
                with suppress(UsageError):  # it has left something behind
                    self._consumer.group.remove(self._consumer.name)
        except HeadraceError as late:
            log.warning("%s: stopped, and could not say so: %s", self.worker, late)
        finally:
            self._keeper.stop()
            self._consumer.end()

    def _finish(self) -> None:
        while (step := self.worker.next()) is not FINISHED:
            self._do(step)

    def _wake(self) -> None:
        for stop in self._waits[:]:
            stop.set()

    def next(self) -> Delivery[Any] | None:
        """The next entry to handle, None when it is time to end. Waits."""
        while True:
            step = self.worker.next()
            if isinstance(step, Delivery):
                return step
            if step is FINISHED:
                return None
            self._do(step)

    def _do(self, step: Step) -> None:
        """One step that is no delivery."""
        if isinstance(step, Ask):
            perform(self._link, self.worker, step)
            return
        assert isinstance(step, Read | Idle)
        stop = Stop()
        self._waits.append(stop)
        try:
            if self.worker.changes != step.changes:  # between the decision and now
                stop.set()
            wait(self._link, self.worker, step, stop)
        finally:
            self._waits.remove(stop)

    # Threads.

    def run(self, function: Callable[[Delivery[Any]], Any], concurrency: int) -> None:
        """Handle entries in this thread and others until it is time to end. Raises what ended one of them."""
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
        if self._error is not None:
            raise self._error

    def _handle(self, function: Callable[[Delivery[Any]], Any]) -> None:
        worker = self.worker
        try:
            while (delivery := self.next()) is not None:
                try:
                    result = function(delivery)
                except Exception as error:
                    worker.failed(delivery, error)
                except BaseException:
                    worker.leave(delivery)
                    raise
                else:
                    if result is not None and unbegun(result):
                        worker.leave(delivery)
                        raise not_handled(function, result)
                    worker.ack(delivery)
        except BaseException as error:
            self._error = self._error or error
            worker.stop()
