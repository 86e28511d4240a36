"""MONITOR: a line for every request of everybody's, from now on."""

from __future__ import annotations

from headrace.commands.call import Call
from headrace.commands.rows import row
from headrace.errors import CommandError


class NotInHere(CommandError):
    text = "ERR MONITOR isn't allowed for DENY BLOCKING client"


def run_monitor(call: Call) -> None:
    """Show the caller all requests, until RESET or the end of the connection."""
    if not call.may_block:
        raise NotInHere()
    call.engine.channels.monitor(call.session)
    call.engine.timing.settle()
    call.answer.ok()


COMMANDS = [row("monitor", 1, run_monitor, "1.0.0", "Shows every request the server carries out.")]
