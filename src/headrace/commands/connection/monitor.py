"""MONITOR: show every request of all clients."""

from __future__ import annotations

from headrace.commands.call import Call
from headrace.commands.rows import server_command
from headrace.errors import CommandError


class MonitorNotAllowed(CommandError):
    text = "ERR MONITOR isn't allowed for DENY BLOCKING client"


def run_monitor(call: Call) -> None:
    """MONITOR: show the client all requests, until RESET or until the connection ends."""
    if not call.policy.may_block:
        raise MonitorNotAllowed()
    call.engine.pubsub.monitor(call.session)
    call.engine.timing.refresh()
    call.reply.ok()


COMMANDS = [server_command("monitor", 1, run_monitor, "1.0.0", "Shows every request that the server runs.")]
