"""CLUSTER, READONLY, READWRITE and ASKING: rejected as by a Redis server without cluster mode.

Clients ask these to find out whether they talk to a cluster. They expect this error, not an unknown command.
"""

from __future__ import annotations

from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.errors import CommandError

SUMMARY = "Rejected: this server has no cluster mode."
CHANGE_FLAGS = "admin no_async_loading stale"
# What changes without a change of the data.
VARYING_TIPS = "nondeterministic_output"
# Subcommand, arity, flags, since which version, tips.
ROWS = (
    ("addslots", -3, CHANGE_FLAGS, "3.0.0", ""),
    ("addslotsrange", -4, CHANGE_FLAGS, "7.0.0", ""),
    ("bumpepoch", 2, CHANGE_FLAGS, "3.0.0", VARYING_TIPS),
    ("count-failure-reports", 3, "admin stale", "3.0.0", VARYING_TIPS),
    ("countkeysinslot", 3, "stale", "3.0.0", ""),
    ("delslots", -3, CHANGE_FLAGS, "3.0.0", ""),
    ("delslotsrange", -4, CHANGE_FLAGS, "7.0.0", ""),
    ("failover", -2, CHANGE_FLAGS, "3.0.0", ""),
    ("flushslots", 2, CHANGE_FLAGS, "3.0.0", ""),
    ("forget", 3, CHANGE_FLAGS, "3.0.0", ""),
    ("getkeysinslot", 4, "stale", "3.0.0", VARYING_TIPS),
    ("help", 2, "loading stale", "5.0.0", ""),
    ("info", 2, "stale", "3.0.0", VARYING_TIPS),
    ("keyslot", 3, "stale", "3.0.0", ""),
    ("links", 2, "stale", "7.0.0", VARYING_TIPS),
    ("meet", -4, CHANGE_FLAGS, "3.0.0", ""),
    ("myid", 2, "stale", "3.0.0", ""),
    ("myshardid", 2, "stale", "7.2.0", VARYING_TIPS),
    ("nodes", 2, "stale", "3.0.0", VARYING_TIPS),
    ("replicas", 3, "admin stale", "5.0.0", VARYING_TIPS),
    ("replicate", 3, CHANGE_FLAGS, "3.0.0", ""),
    ("reset", -2, "admin noscript stale", "3.0.0", ""),
    ("saveconfig", 2, CHANGE_FLAGS, "3.0.0", ""),
    ("set-config-epoch", 3, CHANGE_FLAGS, "3.0.0", ""),
    ("setslot", -4, CHANGE_FLAGS, "3.0.0", ""),
    ("shards", 2, "loading stale", "7.0.0", VARYING_TIPS),
    ("slaves", 3, "admin stale", "3.0.0", VARYING_TIPS),
    ("slot-stats", -4, "loading stale", "8.2.0", "nondeterministic_output request_policy:all_shards"),
    ("slots", 2, "loading stale", "3.0.0", VARYING_TIPS),
)


class NoCluster(CommandError):
    text = "ERR This instance has cluster support disabled"


def run_rejected(call: Call) -> None:
    """Raise NoCluster."""
    raise NoCluster()


def rejected_command_row(
    name: str, arity: int, flags: str, since: str, tips: str = "", categories: str = ""
) -> Command:
    """Return the row of a command that is rejected."""
    return Command(
        name,
        arity,
        run_rejected,
        flags,
        tips=tips,
        group="cluster",
        since=since,
        summary=SUMMARY,
        categories=categories,
    )


COMMANDS = [
    Command(
        "cluster",
        -2,
        None,
        group="cluster",
        since="3.0.0",
        summary=SUMMARY,
        syntax="subcommand [arg ...]",
        subcommands=[
            rejected_command_row(f"cluster|{name}", arity, flags, since, tips)
            for name, arity, flags, since, tips in ROWS
        ],
    ),
    rejected_command_row("asking", 1, "fast", "3.0.0", categories="connection"),
    rejected_command_row("readonly", 1, "fast loading stale", "3.0.0", categories="connection"),
    rejected_command_row("readwrite", 1, "fast loading stale", "3.0.0", categories="connection"),
]
