"""`headrace serve`: everything after it belongs to the server."""

from __future__ import annotations

import click

from headrace.server.main import serve


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
    return serve(list(arguments))
