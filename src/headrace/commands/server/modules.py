"""MODULE: there are no modules, and none can be loaded."""

from __future__ import annotations

from headrace.commands.call import Call
from headrace.commands.command_rows import server_command, server_container
from headrace.errors import CommandError

CHANGE_FLAGS = "admin noscript no_async_loading"


class NoModules(CommandError):
    text = "ERR MODULE command not allowed. This server cannot load modules."


def run_list(call: Call) -> None:
    """MODULE LIST: reply with an empty list."""
    call.reply.array(0)


def run_rejected(call: Call) -> None:
    """Raise NoModules."""
    raise NoModules()


ROWS = [
    server_command(
        "module|list",
        2,
        run_list,
        "4.0.0",
        "Lists the modules: none.",
        flags="admin noscript",
        tips="nondeterministic_output_order",
    ),
    server_command(
        "module|load",
        -3,
        run_rejected,
        "4.0.0",
        "Rejected: there are no modules.",
        "path [arg ...]",
        CHANGE_FLAGS,
    ),
    server_command(
        "module|loadex",
        -3,
        run_rejected,
        "7.0.0",
        "Rejected: there are no modules.",
        "path [arg ...]",
        CHANGE_FLAGS,
    ),
    server_command(
        "module|unload", 3, run_rejected, "4.0.0", "Rejected: there are no modules.", "name", CHANGE_FLAGS
    ),
]

COMMANDS = [server_container("module", "4.0.0", "Modules, of which there are none.", ROWS)]
