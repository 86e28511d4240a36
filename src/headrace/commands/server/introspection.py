"""COMMAND: the command table."""

from __future__ import annotations

from typing import Any

import cython

from headrace.commands.arguments import Arguments
from headrace.commands.call import Call
from headrace.commands.server.help import help_row
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax
from headrace.keyspace.glob import Glob


class InvalidCommand(CommandError):
    text = "ERR Invalid command specified"


class BadCommandArity(CommandError):
    text = "ERR Invalid number of arguments specified for command"


class NoKeys(CommandError):
    text = "ERR The command has no key arguments"


def table(call: Call) -> list[Command]:
    """Return all commands; subcommands follow their container."""
    return [row.command for row in call.engine.stats.rows]


def top_level(call: Call) -> list[Command]:
    """Return all commands without subcommands."""
    return [command for command in table(call) if command.name_length == 1]


def find(call: Call, name: bytes) -> Command | None:
    """Return the command of that name ("config|get" for a subcommand), ignoring case, or None."""
    lower = name.lower()
    return next((command for command in table(call) if command.name == lower), None)


def answer_info(call: Call, command: Command | None) -> None:
    """Write the ten fields of a command; null for None."""
    answer = call.answer
    if command is None:
        answer.null()
        return
    subcommands = command.unique_subcommands()
    answer.array(10)
    answer.bulk(command.name)
    answer.integer(command.arity)
    flags = command.flags | {"movablekeys"} if command.movable_keys is not None else command.flags
    _answer_words(call, sorted(flags))
    answer.integer(command.first_key)
    answer.integer(command.last_key)
    answer.integer(command.key_step)
    _answer_words(call, [f"@{category}" for category in sorted(command.categories)])
    answer.array(0)
    _answer_key_specs(call, command)
    answer.array(len(subcommands))
    for sub in subcommands:
        answer_info(call, sub)


def _answer_words(call: Call, words: list[str]) -> None:
    call.answer.set(len(words))
    for word in words:
        call.answer.simple(word.encode())


def _answer_key_flags(call: Call, command: Command) -> None:
    _answer_words(call, ["RW" if command.write else "RO", "access" if command.readonly else "update"])


def _answer_key_specs(call: Call, command: Command) -> None:
    """Write the key positions: a range from a fixed index. Movable keys are left to COMMAND GETKEYS."""
    answer = call.answer
    if not command.first_key:
        answer.array(0)
        return
    last = command.last_key - command.first_key if command.last_key > 0 else command.last_key
    find_keys = {b"lastkey": last, b"keystep": command.key_step, b"limit": 0}
    answer.array(1)
    answer.map(3)
    answer.bulk(b"flags")
    _answer_key_flags(call, command)
    answer.bulk(b"begin_search")
    answer.value({b"type": b"index", b"spec": {b"index": command.first_key}})
    answer.bulk(b"find_keys")
    answer.value({b"type": b"range", b"spec": find_keys})


def run_command(call: Call) -> None:
    """COMMAND: reply with all fields of all commands."""
    commands = top_level(call)
    call.answer.array(len(commands))
    for command in commands:
        answer_info(call, command)


def run_info(call: Call) -> None:
    """COMMAND INFO: reply with all fields of the named commands, or of all."""
    if len(call.argv) == 2:
        run_command(call)
        return
    call.answer.array(len(call.argv) - 2)
    for name in call.argv[2:]:
        answer_info(call, find(call, name))


def run_count(call: Call) -> None:
    """COMMAND COUNT: reply with the number of commands."""
    call.answer.integer(len(top_level(call)))


def documentation(command: Command) -> dict[bytes, Any]:
    """Return the fields of COMMAND DOCS. The whole syntax is one argument, for hints to show."""
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
        wanted = top_level(call)
    else:
        found = [find(call, name) for name in call.argv[2:]]
        wanted = [command for command in found if command is not None]
    call.answer.map(len(wanted))
    for command in wanted:
        call.answer.bulk(command.name)
        call.answer.value(documentation(command))


def run_list(call: Call) -> None:
    """COMMAND LIST: reply with the names of commands and subcommands, all or filtered."""
    arguments: Arguments = call.arguments()
    names = [command.name for command in table(call)]
    if arguments.has_more():
        if not arguments.take_flag(b"FILTERBY") or arguments.remaining() != 2:
            raise InvalidSyntax()
        if arguments.take_flag(b"MODULE"):
            names = []
        elif arguments.take_flag(b"ACLCAT"):
            category = arguments.next_argument().decode("utf-8", "replace").lower()
            names = [command.name for command in table(call) if category in command.categories]
        elif arguments.take_flag(b"PATTERN"):
            pattern = Glob(arguments.next_argument(), True)
            names = [name for name in names if pattern.matches(name)]
        else:
            raise InvalidSyntax()
    call.answer.array(len(names))
    for name in names:
        call.answer.bulk(name)


def keys_of(call: Call) -> tuple[Command, list[bytes]]:
    """Return the command in the arguments of COMMAND GETKEYS, and its keys."""
    request = call.argv[2:]
    command = find(call, request[0])
    if command is not None and command.subcommands and len(request) > 1:
        command = command.subcommand(request[1])
    if command is None:
        raise InvalidCommand()
    if not command.first_key and command.movable_keys is None:
        raise NoKeys()
    if not command.accepts_argument_count(len(request)):
        raise BadCommandArity()
    return command, [request[at] for at in command.key_positions(request)]


def run_getkeys(call: Call) -> None:
    """COMMAND GETKEYS: reply with the keys of a request."""
    _, keys = keys_of(call)
    call.answer.array(len(keys))
    for key in keys:
        call.answer.bulk(key)


def run_getkeysandflags(call: Call) -> None:
    """COMMAND GETKEYSANDFLAGS: reply with the keys of a request and how it uses them."""
    command, keys = keys_of(call)
    call.answer.array(len(keys))
    for key in keys:
        call.answer.array(2)
        call.answer.bulk(key)
        _answer_key_flags(call, command)


def row(name: str, arity: int, run: Any, since: str, summary: str, syntax: str = "") -> Command:
    """Return a subcommand's row."""
    return Command(
        f"command|{name}",
        arity,
        run,
        "loading stale",
        group="server",
        since=since,
        summary=summary,
        syntax=syntax,
        categories="connection",
    )


SUBCOMMANDS = [
    row("count", 2, run_count, "2.8.13", "Counts the commands."),
    row("docs", -2, run_docs, "7.0.0", "Documents commands.", "[command-name ...]"),
    row("getkeys", -3, run_getkeys, "2.8.13", "Finds the keys in a request.", "command [arg ...]"),
    row(
        "getkeysandflags", -3, run_getkeysandflags, "7.0.0", "Finds keys and their use.", "command [arg ...]"
    ),
    row("info", -2, run_info, "2.8.13", "Describes commands.", "[command-name ...]"),
    row(
        "list",
        -2,
        run_list,
        "7.0.0",
        "Names commands.",
        "[FILTERBY <MODULE name | ACLCAT cat | PATTERN glob>]",
    ),
]

COMMANDS = [
    Command(
        "command",
        -1,
        run_command,
        "loading stale",
        group="server",
        since="2.8.13",
        summary="Describes the commands.",
        complexity="O(N), N being the number of commands",
        categories="connection",
        subcommands=[*SUBCOMMANDS, help_row("command", SUBCOMMANDS, categories="connection")],
    )
]
