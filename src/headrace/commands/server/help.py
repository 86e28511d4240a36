"""The HELP subcommand of a container, generated from the rows of its subcommands."""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.spec import Command


def help_row(
    container: str, subcommands: list[Command], since: str = "5.0.0", categories: str = ""
) -> Command:
    """Return the row of `<container> HELP`, which lists these subcommands and itself."""
    lines = [f"{container.upper()} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for sub in subcommands:
        lines.append(f"{sub.word.decode().upper()} {sub.syntax}".rstrip())
        lines.append(f"    {sub.summary}")
    lines += ["HELP", "    Prints this list."]
    encoded = [line.encode() for line in lines]

    def run_help(call: Call) -> None:
        call.reply.array(len(encoded))
        for line in encoded:
            call.reply.simple(line)

    return Command(
        f"{container}|help",
        2,
        run_help,
        "loading stale",
        group=subcommands[0].group,
        since=since,
        summary="Lists the subcommands.",
        categories=categories,
    )
