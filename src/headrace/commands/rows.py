"""Rows of operators' commands: the server group, and containers in it."""

from __future__ import annotations

from collections.abc import Callable

from headrace.commands.call import Call
from headrace.commands.server.help import help_row
from headrace.commands.spec import Command


def server_command(
    name: str,
    arity: int,
    run: Callable[[Call], None],
    since: str,
    summary: str,
    syntax: str = "",
    flags: str = "admin noscript loading stale",
) -> Command:
    """Return a row of the server group."""
    return Command(name, arity, run, flags, group="server", since=since, summary=summary, syntax=syntax)


def server_container(name: str, since: str, summary: str, subcommands: list[Command]) -> Command:
    """Return the row of a command that only has subcommands."""
    return Command(
        name,
        -2,
        None,
        group="server",
        since=since,
        summary=summary,
        complexity="Depends on the subcommand",
        subcommands=[*subcommands, help_row(name, subcommands)],
    )
