"""A group's consumer in asyncio: handlers are tasks of the loop, requests that wait are in threads beside it.

    async for entry in consumer       one after the other
    await run(consumer, function)     up to `concurrency` at the same time

A runner is a task that does whatever the Worker says is next (see worker.py): handles an entry, asks, waits.
One is enough to begin with. Who gets an entry while nobody waits for more begins another runner, and who
would wait while another does already ends: so one thread waits, however large the concurrency.

A task that is cancelled leaves nothing in mid-air: its thread is told to stop, and what the server answers
all the same still reaches the Worker.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.api.backend import Stop
from headrace.api.consuming.actions import FINISHED, Ask, Idle, Read, Step
from headrace.api.consuming.consumer import not_handled, unbegun
from headrace.api.consuming.in_flight import log
from headrace.api.consuming.lease_renewer import Keeper
from headrace.api.consuming.runner import perform, wait
from headrace.api.delivery import Delivery
from headrace.api.handlers import nothing, stopping_by_signal
from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    from headrace.api.consuming.consumer import Consumer
    from headrace.api.group import Group

T = TypeVar("T")

ASKING = 3  # threads for requests, beside the one that waits


class AsyncDriver:
    """Carries out what a Worker wants, for as many tasks as call next()."""

    def __init__(self, consumer: Consumer[Any]) -> None:
        self.worker = consumer.begin()
        self.worker.on_change = self._changed
        self._consumer = consumer
        self._link = consumer.group.link
        self._keeper = Keeper(self._link, self.worker)
        self._threads = ThreadPoolExecutor(1 + ASKING, thread_name_prefix=f"headrace {self.worker}")
        self._waits: list[Stop] = []  # of tasks that wait
        self._at_work: set[asyncio.Future[None]] = set()  # in threads, for tasks that may be gone by now
        self._home = threading.get_ident()
        self._quick = not (self._link.far or getattr(self._link, "durable", True))  # microseconds: no thread
        self._settling = False  # by a task of this loop, which looks for the next step itself

    async def __aenter__(self) -> AsyncDriver:
        self._keeper.start()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Acknowledge and give back, even if the task is cancelled once more meanwhile."""
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
                log.warning("%s: stopped, and could not say so: %s", self.worker, late)
        if cancelled is not None:
            raise cancelled

    async def _end(self) -> None:
        try:
            while self._at_work:  # what is still answered is given back, too
                await asyncio.wait(self._at_work)
            await self._in_thread(self._finish)
        finally:
            self._keeper.stop()
            self._threads.shutdown(wait=False)
            self._consumer.end()

    def _finish(self) -> None:
        """In a thread."""
        while (step := self.worker.next()) is not FINISHED:
            if isinstance(step, Ask):
                perform(self._link, self.worker, step)
            elif isinstance(step, Read | Idle):
                wait(self._link, self.worker, step, Stop())
        if self._consumer.nameless:  # nobody else has that name, so nothing becomes pending with it now
            with suppress(UsageError):  # it has left something behind
                self._consumer.group.remove(self._consumer.name)

    # Waking.

    def _changed(self) -> None:
        """The Worker's mind has changed. From any thread, with the Worker's lock held."""
        if not (self._settling and threading.get_ident() == self._home):
            self.wake()

    def wake(self) -> None:
        """End the waits: what is next may be something else by now."""
        for stop in self._waits[:]:
            stop.set()

    def settle(self, how: Callable[..., None], *arguments: Any) -> None:
        """Tell the Worker how it went with an entry: who waits need not hear of it, for this task goes on."""
        self._settling = True
        try:
            how(*arguments)
        finally:
            self._settling = False

    # Steps.

    async def next(self) -> Delivery[Any] | None:
        """The next entry to handle, None when it is time to end. Waits."""
        while (step := self.worker.next()) is not FINISHED:
            if isinstance(step, Delivery):
                return step
            await self.do(step)
        return None

    async def do(self, step: Step) -> None:
        """One step that is no delivery."""
        if isinstance(step, Ask):
            if self._quick:
                perform(self._link, self.worker, step)
                await asyncio.sleep(0)
            else:
                await self._in_thread(partial(perform, self._link, self.worker, step))
            return
        assert isinstance(step, Read | Idle)
        stop = Stop()
        self._waits.append(stop)
        if self.worker.changes != step.changes:  # between the decision and now
            stop.set()
        try:
            await self._in_thread(partial(wait, self._link, self.worker, step, stop))
        finally:
            stop.set()
            self._waits.remove(stop)

    async def _in_thread(self, call: Callable[[], None]) -> None:
        """Have it done to its end, whether or not the task that asks for it is cancelled."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, call)
        self._at_work.add(work)
        work.add_done_callback(self._at_work.discard)
        await asyncio.shield(work)


async def entries(consumer: Consumer[T]) -> AsyncIterator[Delivery[T]]:
    """The entries as they come; each is acknowledged when the next is asked for."""
    async with AsyncDriver(consumer) as driver:
        while (delivery := await driver.next()) is not None:
            try:
                yield delivery
            except BaseException:  # GeneratorExit: the loop was left
                driver.worker.leave(delivery)
                raise
            driver.settle(driver.worker.ack, delivery)


async def run(consumer: Consumer[T], function: Callable[[Delivery[T]], Any]) -> None:
    """Call function with each entry, `concurrency` at a time, until consumer.stop(); if it raises, it failed.

    A coroutine function runs in the loop, any other in a thread. When this task is cancelled so are the
    handlers; what they had begun is delivered again. Raises what ended one of the runners.
    """
    async with AsyncDriver(consumer) as driver:
        await Crew(driver, function, consumer.concurrency).run()


async def run_handlers(group: Group[Any], signals: bool) -> None:
    """Run a group's handlers until they end; what ends one of them stops the others and is raised."""
    if not group.handlers:
        raise UsageError("there is nothing to run: decorate a function with @group.handler")
    with stopping_by_signal(group.stop) if signals else nothing():
        tasks = [asyncio.ensure_future(run(one.consumer, one.function)) for one in group.handlers]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if any(task.done() and task.exception() is not None for task in tasks):
                group.stop()
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
    for task in tasks:
        task.result()


class Crew:
    """The runners."""

    def __init__(
        self, driver: AsyncDriver, function: Callable[[Delivery[Any]], Any], concurrency: int
    ) -> None:
        self._driver = driver
        self._worker = driver.worker
        self._most = concurrency
        self._runners: set[asyncio.Task[None]] = set()
        self._waiting: Step | None = None  # what the one who waits does
        self._error: BaseException | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._function = function
        self._call: Callable[[Delivery[Any]], Awaitable[Any]] = function
        if not inspect.iscoroutinefunction(function):
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix=f"handler {self._worker}")
            self._call = partial(self._in_thread, function)

    async def run(self) -> None:
        """Until all is done that was begun, after stop()."""
        self._begin_another()
        try:
            while self._runners:
                await asyncio.wait(self._runners)
        except asyncio.CancelledError:
            self._worker.stop()
            for runner in self._runners:
                runner.cancel()
            await asyncio.wait(self._runners)
            raise
        finally:
            if self._threads is not None:
                self._threads.shutdown(wait=False)
        if self._error is not None:
            raise self._error

    def _begin_another(self) -> None:
        if len(self._runners) < self._most:
            runner = asyncio.get_running_loop().create_task(self._run())
            self._runners.add(runner)
            runner.add_done_callback(self._ended)

    def _ended(self, runner: asyncio.Task[None]) -> None:
        self._runners.discard(runner)
        if not runner.cancelled() and (error := runner.exception()) is not None:
            self._error = self._error or error
            self._worker.stop()

    async def _run(self) -> None:
        """One runner."""
        while (step := self._worker.next()) is not FINISHED:
            if isinstance(step, Delivery):
                self._look_after_the_next()
                await self._handle(step)
            elif isinstance(step, Ask):
                await self._driver.do(step)
            elif isinstance(step, Idle) and self._waiting is not None:
                self._driver.wake()  # whoever waits looks anew for how long
                return
            else:
                await self._wait(step)
        self._driver.wake()  # who still waits is to hear of it

    def _look_after_the_next(self) -> None:
        """Someone should wait for entries while this runner handles one."""
        if self._waiting is None:
            self._begin_another()
        elif isinstance(self._waiting, Idle):
            self._driver.wake()

    async def _wait(self, step: Step) -> None:
        if self._waiting is not None:  # he idles, and this one reads
            self._driver.wake()
        self._waiting = step
        try:
            await self._driver.do(step)
        finally:
            if self._waiting is step:
                self._waiting = None

    async def _handle(self, delivery: Delivery[Any]) -> None:
        driver, worker = self._driver, self._worker
        task = asyncio.current_task()
        assert task is not None
        try:
            result = await self._call(delivery)
        except asyncio.CancelledError as error:
            if task.cancelling():
                worker.leave(delivery)
                raise
            driver.settle(worker.failed, delivery, error)  # the handler was cancelled by something of its own
        except Exception as error:
            driver.settle(worker.failed, delivery, error)
        except BaseException:
            worker.leave(delivery)
            raise
        else:
            if result is not None and unbegun(result):
                worker.leave(delivery)
                raise not_handled(self._function, result)
            driver.settle(worker.ack, delivery)
        await asyncio.sleep(0)  # a handler that never waits would keep the loop from everything else

    async def _in_thread(self, function: Callable[[Delivery[Any]], Any], delivery: Delivery[Any]) -> Any:
        result = await asyncio.get_running_loop().run_in_executor(self._threads, called, function, delivery)
        if inspect.isawaitable(result):  # it did not look like a coroutine function, and is one
            return await result
        return result


def called(function: Callable[[Delivery[Any]], Any], delivery: Delivery[Any]) -> Any:
    """What the function returns. A StopIteration, which no future takes, becomes a RuntimeError."""
    try:
        return function(delivery)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error
