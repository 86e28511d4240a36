"""Run the functions that handle a group's entries in asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from headrace.api.consuming.async_consumer import run
from headrace.api.handlers import Handler, raise_first, without_signal_handling
from headrace.api.signals import stop_on_signals
from headrace.errors import UsageError


async def run_handlers(handlers: Sequence[Handler], stop: Callable[[], None], signals: bool) -> None:
    """Run all handlers until they end; stop() ends them.

    An error that ends one of them stops the others and is raised. Raises UsageError if there is no handler.
    """
    if not handlers:
        raise UsageError("there is nothing to run: decorate a function with @group.handler or @app.handler")
    with stop_on_signals(stop) if signals else without_signal_handling():
        tasks = [
            asyncio.ensure_future(run(one.consumer, one.function, one.batch_settings)) for one in handlers
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if errors_of(tasks):
                stop()
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            errors_of(tasks)
            raise
    raise_first(errors_of(tasks))
    for task in tasks:
        task.result()  # CancelledError, if one was cancelled


def errors_of(tasks: Sequence[asyncio.Task[None]]) -> list[BaseException]:
    """Return the errors of ended tasks; asyncio logs an error that is not retrieved."""
    ended = [task for task in tasks if task.done() and not task.cancelled()]
    return [error for task in ended if (error := task.exception()) is not None]
