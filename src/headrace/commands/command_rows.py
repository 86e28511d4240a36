"""Build rows of the command table: HELP subcommands, commands of the group `server`, and containers."""

from __future__ import annotations

from collections.abc import Callable

from headrace.commands.call import Call
from headrace.commands.spec import Command


def help_row(
    container: str, subcommands: list[Command], since: str = "5.0.0", categories: str = ""
) -> Command:
    """Return the row of `<container> HELP`: its reply lists these subcommands and itself."""
    lines = [f"{container.upper()} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for sub in subcommands:
        lines.append(f"{sub.last_name_part.decode().upper()} {sub.syntax}".rstrip())
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


def server_command(
    name: str,
    arity: int,
    run: Callable[[Call], None],
    since: str,
    summary: str,
    syntax: str = "",
    flags: str = "admin noscript loading stale",
    tips: str = "",
    secrets: Callable[[list[bytes]], list[int]] | str = "",
    complexity: str = "O(1)",
) -> Command:
    """Return the row of a command of the group `server`."""
    return Command(
        name,
        arity,
        run,
        flags,
        secrets=secrets,
        tips=tips,
        group="server",
        since=since,
        summary=summary,
        syntax=syntax,
        complexity=complexity,
    )


def server_container(name: str, since: str, summary: str, subcommands: list[Command]) -> Command:
    """Return the row of a command of the group `server` that only has subcommands."""
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
