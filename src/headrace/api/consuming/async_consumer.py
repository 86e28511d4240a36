"""A group's consumer in asyncio: handlers are tasks of the loop; blocking requests run in threads.

    async for entry in consumer       one entry, or batch, after the other
    await run(consumer, function)     up to `concurrency` of them at the same time

A runner is a task that performs the Worker's next action (see worker.py): handle an entry, send requests,
wait. A consumer starts with one runner. A runner that gets an entry starts another one if none is polling. A
runner that would poll beside another exits. So one thread waits, whatever the concurrency.

When a task is cancelled, its thread is told to stop, and the Worker still receives the server's reply.

A cancellation of run() ends all runners. If only one runner's task is cancelled, for example by a watchdog of
the program, the entry of that runner counts as failed, and the consumer continues.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from headrace.api.backend import Stop
from headrace.api.batch import Batch, DeliveryOrBatch
from headrace.api.consuming.action_runner import (
    DrivenConsumer,
    perform_waiting_action,
    require_handler_ran,
    send_requests,
)
from headrace.api.consuming.actions import FINISHED, Action, BlockingRead, Idle, SendRequests
from headrace.api.consuming.batching import BatchSettings
from headrace.api.consuming.in_flight import log
from headrace.api.consuming.lease_renewer import LeaseRenewer
from headrace.api.delivery import Delivery
from headrace.errors import HeadraceError

T = TypeVar("T")

REQUEST_THREADS = 3  # threads for requests, beside the one that waits


class AsyncDriver:
    """Performs the actions of a Worker for as many tasks as call next_work()."""

    def __init__(self, consumer: DrivenConsumer, batches: BatchSettings | None = None) -> None:
        self.worker = consumer.create_worker(batches)
        self.worker.on_change = self._on_worker_changed
        self._consumer = consumer
        self._backend = consumer.backend
        self._lease_renewer = LeaseRenewer(self._backend, self.worker)
        self._threads = ThreadPoolExecutor(1 + REQUEST_THREADS, thread_name_prefix=f"headrace {self.worker}")
        self._waits: list[Stop] = []  # of tasks that wait
        # in threads, for tasks that may be gone by now
        self._running_calls: set[asyncio.Future[None]] = set()
        self._loop_thread = threading.get_ident()
        # requests take microseconds: no thread is needed
        self._runs_inline = not (self._backend.is_remote or getattr(self._backend, "durable", True))
        self._settling = False  # by a task of this loop, which looks for the next action itself

    async def __aenter__(self) -> AsyncDriver:
        self._lease_renewer.start()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Acknowledge and release entries, even if the task is cancelled again meanwhile."""
        self.worker.stop()
        self.wake()
        end = asyncio.ensure_future(self._end())
        cancelled = None
        while not end.done():
            try:
                await asyncio.shield(end)
            except asyncio.CancelledError as again:
                cancelled = again
            except HeadraceError as late:
                log.warning("%s: stopped, but could not release its entries: %s", self.worker, late)
        if cancelled is not None:
            raise cancelled

    async def _end(self) -> None:
        try:
            while self._running_calls:  # entries of late replies are released, too
                await asyncio.wait(self._running_calls)
            await self._in_thread(self._finish)
        finally:
            self._lease_renewer.stop()
            self._threads.shutdown(wait=False)
            self._consumer.detach_worker()

    def _finish(self) -> None:
        """Perform the last actions. Runs in a thread."""
        while (action := self.worker.next_action()) is not FINISHED:
            if isinstance(action, SendRequests):
                send_requests(self._backend, self.worker, action)
            elif isinstance(action, BlockingRead | Idle):
                perform_waiting_action(self._backend, self.worker, action, Stop())
        self._consumer.remove_if_name_generated()

    # Waking.

    def _on_worker_changed(self) -> None:
        """Wake waiting tasks, because the next action may have changed.

        Called from any thread, with the Worker's lock held.
        """
        if not (self._settling and threading.get_ident() == self._loop_thread):
            self.wake()

    def wake(self) -> None:
        """End all waits, because the next action may have changed."""
        for stop in self._waits[:]:
            stop.set()

    def wake_after_calls(self) -> None:
        """Call wake() when each running call ends: the tasks that waited for these calls were cancelled."""
        for call in self._running_calls:
            call.add_done_callback(lambda _: self.wake())

    def settle_without_waking(self, how: Callable[..., None], *arguments: Any) -> None:
        """Report a result to the Worker by how(*arguments).

        Other tasks are not woken, because this one asks for the next action.
        """
        self._settling = True
        try:
            how(*arguments)
        finally:
            self._settling = False

    # Steps.

    async def next_work(self) -> DeliveryOrBatch | None:
        """Wait for the next entry or batch and return it; None when the loop should end."""
        while (action := self.worker.next_action()) is not FINISHED:
            if isinstance(action, Delivery | Batch):
                return action
            await self.perform_action(action)
        return None

    async def perform_action(self, action: Action) -> None:
        """Perform an action other than a delivery."""
        if isinstance(action, SendRequests):
            if self._runs_inline:
                send_requests(self._backend, self.worker, action)
                await asyncio.sleep(0)
            else:
                await self._in_thread(partial(send_requests, self._backend, self.worker, action))
            return
        assert isinstance(action, BlockingRead | Idle)
        stop = Stop()
        self._waits.append(stop)
        if self.worker.revision != action.worker_revision:  # between the decision and now
            stop.set()
        try:
            await self._in_thread(partial(perform_waiting_action, self._backend, self.worker, action, stop))
        finally:
            stop.set()
            self._waits.remove(stop)

    async def _in_thread(self, call: Callable[[], None]) -> None:
        """Run `call` in a thread to its end, even if this task is cancelled."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, call)
        self._running_calls.add(work)
        work.add_done_callback(self._running_calls.discard)
        await asyncio.shield(work)


async def iter_work(consumer: DrivenConsumer, batches: BatchSettings | None) -> AsyncIterator[Any]:
    """Iterate over entries or batches; each is acknowledged when the next one is requested."""
    async with AsyncDriver(consumer, batches) as driver:
        while (work := await driver.next_work()) is not None:
            try:
                yield work
            except BaseException:  # GeneratorExit: the loop was left
                driver.worker.abandon(work)
                raise
            driver.settle_without_waking(driver.worker.ack, work)


async def run(
    consumer: DrivenConsumer, function: Callable[[Any], Any], batches: BatchSettings | None = None
) -> None:
    """Call `function` with each entry or batch, `concurrency` at a time, until consumer.stop().

    A coroutine function runs in the loop, any other one in a thread. An exception is a failure of the entry.
    Cancelling this task cancels the handlers, and their entries are delivered again. Raises the error that
    ended a runner.
    """
    async with AsyncDriver(consumer, batches) as driver:
        await TaskPool(driver, function, consumer.concurrency).run()


class TaskPool:
    """The runners of one consumer: at most `concurrency` tasks."""

    def __init__(self, driver: AsyncDriver, function: Callable[[Any], Any], concurrency: int) -> None:
        self._driver = driver
        self._worker = driver.worker
        self._max_runners = concurrency
        self._runners: set[asyncio.Task[None]] = set()
        self._waiting_action: Action | None = None  # the action of the waiting runner
        self._error: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None  # of run()
        self._earlier_cancellations = 0  # of that task, which it has ignored
        self._threads: ThreadPoolExecutor | None = None
        self._function = function
        self._call: Callable[[Any], Awaitable[Any]] = function
        if not inspect.iscoroutinefunction(function):
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix=f"handler {self._worker}")
            self._call = partial(self._in_thread, function)

    async def run(self) -> None:
        """Run until stop() was called and all begun entries are finished."""
        self._task = asyncio.current_task()
        assert self._task is not None
        self._earlier_cancellations = self._task.cancelling()
        self._start_runner()
        try:
            while self._runners:
                await asyncio.wait(self._runners)
        except asyncio.CancelledError:
            self._worker.stop()
            for runner in self._runners:
                runner.cancel()
            if self._runners:
                await asyncio.wait(self._runners)
            raise
        finally:
            if self._threads is not None:
                self._threads.shutdown(wait=False)
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame: they would be a reference cycle

    def _start_runner(self) -> None:
        if len(self._runners) < self._max_runners:
            runner = asyncio.get_running_loop().create_task(self._run_one())
            self._runners.add(runner)
            runner.add_done_callback(self._on_runner_done)

    def _on_runner_done(self, runner: asyncio.Task[None]) -> None:
        self._runners.discard(runner)
        if runner.cancelled():
            if not self._is_cancelled():  # while it waited: no entry has failed
                log.warning("%s: a task was cancelled, but not the consumer: it goes on", self._worker)
                self._driver.wake_after_calls()
                self._start_runner()
        elif (error := runner.exception()) is not None:
            self._error = self._error or error
            self._worker.stop()

    def _is_cancelled(self) -> bool:
        """Return whether run() was cancelled, and not only a runner."""
        return self._task is not None and self._task.cancelling() > self._earlier_cancellations

    async def _run_one(self) -> None:
        """Perform the Worker's actions until it has finished, or another runner waits for the next one."""
        while (action := self._worker.next_action()) is not FINISHED:
            if isinstance(action, Delivery | Batch):
                self._ensure_poller()
                await self._handle(action)
            elif isinstance(action, SendRequests):
                await self._driver.perform_action(action)
            elif isinstance(action, Idle) and self._waiting_action is not None:
                self._driver.wake()  # the waiting runner computes its timeout again
                return
            else:
                await self._perform_waiting_action(action)
        self._driver.wake()  # end the wait of the remaining runner

    def _ensure_poller(self) -> None:
        """Make sure that a runner waits for entries while this one works on something."""
        if self._waiting_action is None:
            self._start_runner()
        elif isinstance(self._waiting_action, Idle):
            self._driver.wake()

    async def _perform_waiting_action(self, action: Action) -> None:
        if self._waiting_action is not None:  # it idles, and this one reads
            self._driver.wake()
        self._waiting_action = action
        try:
            await self._driver.perform_action(action)
        finally:
            if self._waiting_action is action:
                self._waiting_action = None

    async def _handle(self, work: DeliveryOrBatch) -> None:
        driver, worker = self._driver, self._worker
        task = asyncio.current_task()
        assert task is not None
        try:
            result = await self._call(work)
        except asyncio.CancelledError as error:
            if self._is_cancelled():
                worker.abandon(work)
                raise
            driver.settle_without_waking(
                worker.record_failure, work, error
            )  # something else cancelled the handler
        except Exception as error:
            driver.settle_without_waking(worker.record_failure, work, error)
        except BaseException:
            worker.abandon(work)
            raise
        else:
            if result is not None:
                require_handler_ran(worker, work, self._function, result)
            driver.settle_without_waking(worker.ack, work)
        while task.cancelling() and not self._is_cancelled():
            task.uncancel()  # the cancellation ends with the handler: the next entry is not affected
        await asyncio.sleep(0)  # a handler that never waits would keep the loop from everything else

    async def _in_thread(self, function: Callable[[Any], Any], work: DeliveryOrBatch) -> Any:
        result = await asyncio.get_running_loop().run_in_executor(self._threads, call_handler, function, work)
        if inspect.isawaitable(result):  # it did not look like a coroutine function, and is one
            return await result
        return result


def call_handler(function: Callable[[Any], Any], work: DeliveryOrBatch) -> Any:
    """Return the function's result. Convert StopIteration, which a future rejects, into RuntimeError."""
    try:
        return function(work)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error
