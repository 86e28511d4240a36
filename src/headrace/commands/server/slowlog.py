"""SLOWLOG: the latest requests that took longer than slowlog-log-slower-than allows."""

from __future__ import annotations

from itertools import islice

from headrace.commands.arguments import parse_i64
from headrace.commands.call import Call
from headrace.commands.command_rows import server_command, server_container
from headrace.errors import CommandError, NotAnInteger, UnknownSubcommand

COUNT_DEFAULT = 10  # without a count


class BadCount(CommandError):
    text = "ERR count should be greater than or equal to -1"


def run_get(call: Call) -> None:
    """SLOWLOG GET: reply with the newest requests: number, second, microseconds, arguments, address, name."""
    if len(call.argv) > 3:
        raise UnknownSubcommand("SLOWLOG", call.argv[1])
    requests = call.engine.timing.slow_log.requests
    count = COUNT_DEFAULT
    if len(call.argv) == 3:
        try:
            count = parse_i64(call.argv[2])
        except NotAnInteger:
            raise BadCount() from None
        if count < -1:
            raise BadCount()
    call.reply.value([list(request) for request in islice(requests, count if count >= 0 else None)])


def run_len(call: Call) -> None:
    """SLOWLOG LEN: reply with the number of stored requests."""
    call.reply.integer(len(call.engine.timing.slow_log.requests))


def run_reset(call: Call) -> None:
    """SLOWLOG RESET: delete the stored requests."""
    call.engine.timing.slow_log.clear()
    call.reply.ok()


SUBCOMMAND_FLAGS = "admin loading stale"

SUBCOMMANDS = [
    server_command(
        "slowlog|get",
        -2,
        run_get,
        "2.2.12",
        "Returns the latest slow requests.",
        "[count]",
        SUBCOMMAND_FLAGS,
        tips="request_policy:all_nodes nondeterministic_output",
    ),
    server_command(
        "slowlog|len",
        2,
        run_len,
        "2.2.12",
        "Counts the recorded requests.",
        flags=SUBCOMMAND_FLAGS,
        tips="request_policy:all_nodes response_policy:agg_sum nondeterministic_output",
    ),
    server_command(
        "slowlog|reset",
        2,
        run_reset,
        "2.2.12",
        "Deletes the recorded requests.",
        flags=SUBCOMMAND_FLAGS,
        tips="request_policy:all_nodes response_policy:all_succeeded",
    ),
]

COMMANDS = [server_container("slowlog", "2.2.12", "Slow requests.", SUBCOMMANDS)]
