"""`headrace serve`: run the server, which parses all further arguments itself."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import click

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command(
    "serve",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Run the server, with an optional redis.conf and directives.

    Example: headrace serve redis.conf --port 7777 --stream-node-max-entries 200
    """
    try:
        with signals_blocked():  # an interrupted import can raise any error
            from headrace.server.main import serve
        return serve(list(arguments))
    except KeyboardInterrupt:  # the server does not handle signals yet: there is nothing to shut down
        return 0


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block signals that stop the program; they are delivered at the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
