"""MONITOR: show every request of all clients."""

from __future__ import annotations

from headrace.commands.call import Call
from headrace.commands.command_rows import server_command
from headrace.errors import CommandError

ESCAPES = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
ESCAPED_BYTES = [
    ESCAPES.get(byte, b"%c" % byte if 32 <= byte < 127 else b"\\x%02x" % byte) for byte in range(256)
]


class MonitorNotAllowed(CommandError):
    text = "ERR MONITOR isn't allowed for DENY BLOCKING client"


def quoted(word: bytes) -> bytes:
    """Return the word in double quotes, with escapes for unprintable bytes, as redis-cli reads it."""
    return b'"' + b"".join([ESCAPED_BYTES[byte] for byte in word]) + b'"'


def run_monitor(call: Call) -> None:
    """MONITOR: send the client every request of all clients, until RESET or until the connection ends."""
    if not call.policy.may_block:
        raise MonitorNotAllowed()
    call.engine.pubsub.add_monitor(call.session)
    call.engine.timing.refresh()
    call.reply.ok()


COMMANDS = [server_command("monitor", 1, run_monitor, "1.0.0", "Shows every request that the server runs.")]
