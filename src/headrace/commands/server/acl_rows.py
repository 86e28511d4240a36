"""The rows of ACL and its subcommands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from headrace.commands.server.help import help_row
from headrace.commands.spec import Command

ADMIN = "admin noscript loading stale"
ANYBODY = "noscript loading stale"

# Subcommand, arity, flags, since, summary, syntax, complexity.
ROWS = (
    ("cat", -2, ANYBODY, "6.0.0", "Lists the categories, or the commands of one.", "[category]", "O(1)"),
    (
        "deluser",
        -3,
        ADMIN,
        "6.0.0",
        "Removes users and closes their connections.",
        "username [username ...]",
        "O(1) for every user, and for every connection",
    ),
    (
        "dryrun",
        -4,
        ADMIN,
        "7.0.0",
        "Reports whether a user may make a request, without running it.",
        "username command [arg [arg ...]]",
        "O(1)",
    ),
    ("genpass", -2, ANYBODY, "6.0.0", "Generates a random password.", "[bits]", "O(1)"),
    (
        "getuser",
        3,
        ADMIN,
        "6.0.0",
        "Returns a user's flags, passwords and rules.",
        "username",
        "O(N), N being the user's rules",
    ),
    ("list", 2, ADMIN, "6.0.0", "Lists the users as lines of a file.", "", "O(N), N being the users"),
    ("load", 2, ADMIN, "6.0.0", "Reads the users from the ACL file.", "", "O(N), N being the users"),
    (
        "log",
        -2,
        ADMIN,
        "6.0.0",
        "Shows the latest denied requests.",
        "[count | RESET]",
        "O(N), N being count",
    ),
    ("save", 2, ADMIN, "6.0.0", "Writes the users to the ACL file.", "", "O(N), N being the users"),
    (
        "setuser",
        -3,
        ADMIN,
        "6.0.0",
        "Creates or changes a user by rules.",
        "username [rule [rule ...]]",
        "O(N), N being the rules, and O(1) for every connection",
    ),
    ("users", 2, ADMIN, "6.0.0", "Lists the names of the users.", "", "O(N), N being the users"),
    ("whoami", 2, ANYBODY, "6.0.0", "Names the caller's user.", "", "O(1)"),
)


def container(runs: dict[str, Callable[[Any], None]]) -> Command:
    """Return the row of ACL with these functions for its subcommands."""
    rows = [
        Command(
            f"acl|{name}",
            arity,
            runs[name],
            flags,
            group="server",
            since=since,
            summary=summary,
            syntax=syntax,
            complexity=cost,
        )
        for name, arity, flags, since, summary, syntax, cost in ROWS
    ]
    return Command(
        "acl",
        -2,
        None,
        "",
        group="server",
        since="6.0.0",
        summary="Users and their permissions.",
        complexity="Depends on the subcommand",
        subcommands=[*rows, help_row("acl", rows, "6.0.0")],
    )
