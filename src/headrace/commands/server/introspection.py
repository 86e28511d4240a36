"""COMMAND: the command table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cython

from headrace.commands.arguments import Arguments
from headrace.commands.call import Call
from headrace.commands.command_rows import help_row
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax
from headrace.keyspace.glob import Glob
from headrace.resp.writer import ReplyWriter


class InvalidCommand(CommandError):
    text = "ERR Invalid command specified"


class BadCommandArity(CommandError):
    text = "ERR Invalid number of arguments specified for command"


class CommandWithoutKeys(CommandError):
    text = "ERR The command has no key arguments"


def all_commands(call: Call) -> list[Command]:
    """Return all commands; subcommands follow their container."""
    return [row.command for row in call.engine.stats.rows]


def top_level_commands(call: Call) -> list[Command]:
    """Return all commands, but not their subcommands."""
    return [command for command in all_commands(call) if command.name_argument_count == 1]


def find_command(call: Call, request: list[bytes]) -> Command | None:
    """Return the command or subcommand that the request would run, or None.

    The two parts of a subcommand's name are two arguments: "config|get" is no command.
    """
    command = find_commands_by_name(call, request[:1])[0]
    if command is None or command.name_argument_count > 1:
        return None
    if len(request) == 1 or not command.subcommands:
        return command
    return command.subcommand(request[1])


def find_commands_by_name(call: Call, names: list[bytes]) -> list[Command | None]:
    """Return the command of each name ("config|get" for a subcommand), ignoring case, or None.

    The time is linear in the number of names.
    """
    by_name = {command.name: command for command in all_commands(call)}
    return [by_name.get(name.lower()) for name in names]


def write_command_info(reply: ReplyWriter, command: Command | None) -> None:
    """Write the ten fields of a command; null for None."""
    if command is None:
        reply.null()
        return
    subcommands = command.unique_subcommands()
    reply.array(10)
    reply.bulk(command.name)
    reply.integer(command.arity)
    _write_words(reply, sorted(command.flags))
    for position in command.shown_key_span:
        reply.integer(position)
    _write_words(reply, [f"@{category}" for category in sorted(command.categories)])
    reply.array(len(command.tips))
    for tip in command.tips:
        reply.bulk(tip.encode())
    _write_key_specs(reply, command)
    reply.array(len(subcommands))
    for sub in subcommands:
        write_command_info(reply, sub)


def _write_words(reply: ReplyWriter, words: Sequence[str]) -> None:
    reply.set(len(words))
    for word in words:
        reply.simple(word.encode())


def _write_key_specs(reply: ReplyWriter, command: Command) -> None:
    """Write where the keys are and how the command uses them."""
    reply.array(len(command.key_specs))
    for spec in command.key_specs:
        reply.map(3)
        reply.bulk(b"flags")
        _write_words(reply, spec.flags)
        reply.bulk(b"begin_search")
        reply.value(spec.begin_search_map)
        reply.bulk(b"find_keys")
        reply.value(spec.find_keys_map)


def run_command(call: Call) -> None:
    """COMMAND: reply with all fields of all commands."""
    commands = top_level_commands(call)
    call.reply.array(len(commands))
    for command in commands:
        write_command_info(call.reply, command)


def run_info(call: Call) -> None:
    """COMMAND INFO: reply with all fields of the named commands, or of all."""
    if len(call.argv) == 2:
        run_command(call)
        return
    call.reply.array(len(call.argv) - 2)
    encoded: dict[Command | None, bytes] = {}  # a name may be repeated many times
    for command in find_commands_by_name(call, call.argv[2:]):
        if command not in encoded:
            writer = ReplyWriter(call.reply.protocol)
            write_command_info(writer, command)
            encoded[command] = writer.take()
        call.reply.raw(encoded[command])


def run_count(call: Call) -> None:
    """COMMAND COUNT: reply with the number of commands."""
    call.reply.integer(len(top_level_commands(call)))


def documentation(command: Command) -> dict[bytes, Any]:
    """Return the fields of COMMAND DOCS. The whole syntax is one argument, so that clients can show it."""
    facts: dict[bytes, Any] = {
        b"summary": command.summary.encode(),
        b"since": command.since.encode(),
        b"group": command.group.encode(),
        b"complexity": command.complexity.encode(),
    }
    if command.syntax:
        facts[b"arguments"] = [{b"name": command.syntax.encode(), b"type": b"string"}]
    if command.subcommands:
        facts[b"subcommands"] = {sub.name: documentation(sub) for sub in command.unique_subcommands()}
    return facts


def run_docs(call: Call) -> None:
    """COMMAND DOCS: reply with the documentation of the named commands, or of all."""
    if len(call.argv) == 2:
        wanted = top_level_commands(call)
    else:
        found = find_commands_by_name(call, call.argv[2:])
        wanted = [command for command in found if command is not None]
    call.reply.map(len(wanted))
    for command in wanted:
        call.reply.bulk(command.name)
        call.reply.value(documentation(command))


def run_list(call: Call) -> None:
    """COMMAND LIST: reply with the names of commands and subcommands, all or filtered."""
    arguments: Arguments = call.arguments()
    names = [command.name for command in all_commands(call)]
    if arguments.has_more():
        if not arguments.take_flag(b"FILTERBY") or arguments.remaining_count() != 2:
            raise InvalidSyntax()
        if arguments.take_flag(b"MODULE"):
            names = []
        elif arguments.take_flag(b"ACLCAT"):
            category = arguments.next_argument().decode("utf-8", "replace").lower()
            names = [command.name for command in all_commands(call) if category in command.categories]
        elif arguments.take_flag(b"PATTERN"):
            pattern = Glob(arguments.next_argument(), True)
            names = [name for name in names if pattern.matches(name)]
        else:
            raise InvalidSyntax()
    call.reply.array(len(names))
    for name in names:
        call.reply.bulk(name)


def command_and_keys(call: Call) -> tuple[Command, list[bytes]]:
    """Return the command in the arguments of COMMAND GETKEYS, and its keys. Raises CommandError."""
    request = call.argv[2:]
    command = find_command(call, request)
    if command is None:
        raise InvalidCommand()
    if not command.has_keys:
        raise CommandWithoutKeys()
    if not command.accepts_argument_count(len(request)):
        raise BadCommandArity()
    return command, [request[at] for at in command.key_positions(request)]


def run_getkeys(call: Call) -> None:
    """COMMAND GETKEYS: reply with the keys of a request."""
    _, keys = command_and_keys(call)
    call.reply.array(len(keys))
    for key in keys:
        call.reply.bulk(key)


def run_getkeysandflags(call: Call) -> None:
    """COMMAND GETKEYSANDFLAGS: reply with the keys of a request and how it uses them."""
    command, keys = command_and_keys(call)
    flags = command.flags_of_keys(call.argv[2:])
    call.reply.array(len(keys))
    for i in range(len(keys)):
        call.reply.array(2)
        call.reply.bulk(keys[i])
        _write_words(call.reply, flags[min(i, len(flags) - 1)])


def subcommand_row(
    name: str, arity: int, run: Any, since: str, summary: str, syntax: str = "", tips: str = ""
) -> Command:
    """Return a subcommand's row."""
    return Command(
        f"command|{name}",
        arity,
        run,
        "loading stale",
        tips=tips,
        group="server",
        since=since,
        summary=summary,
        syntax=syntax,
        categories="connection",
    )


SUBCOMMANDS = [
    subcommand_row("count", 2, run_count, "2.8.13", "Counts the commands."),
    subcommand_row(
        "docs",
        -2,
        run_docs,
        "7.0.0",
        "Documents commands.",
        "[command-name ...]",
        tips="nondeterministic_output_order",
    ),
    subcommand_row("getkeys", -3, run_getkeys, "2.8.13", "Finds the keys in a request.", "command [arg ...]"),
    subcommand_row(
        "getkeysandflags", -3, run_getkeysandflags, "7.0.0", "Finds keys and their use.", "command [arg ...]"
    ),
    subcommand_row(
        "info",
        -2,
        run_info,
        "2.8.13",
        "Describes commands.",
        "[command-name ...]",
        tips="nondeterministic_output_order",
    ),
    subcommand_row(
        "list",
        -2,
        run_list,
        "7.0.0",
        "Names commands.",
        "[FILTERBY <MODULE name | ACLCAT cat | PATTERN glob>]",
        tips="nondeterministic_output_order",
    ),
]

COMMANDS = [
    Command(
        "command",
        -1,
        run_command,
        "loading stale",
        tips="nondeterministic_output_order",
        group="server",
        since="2.8.13",
        summary="Describes the commands.",
        complexity="O(N), N being the number of commands",
        categories="connection",
        subcommands=[*SUBCOMMANDS, help_row("command", SUBCOMMANDS, categories="connection")],
    )
]
