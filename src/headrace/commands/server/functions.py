"""FUNCTION, FCALL and FCALL_RO: libraries of functions in Lua, which are stored with the data.

The effects of the commands that change libraries are the commands themselves.
"""

from __future__ import annotations

import cython

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.command_rows import help_row
from headrace.commands.keys.dump import WrongPayload
from headrace.commands.scripts_interface import Function, ScriptsInterface
from headrace.commands.server.scripts import (
    NegativeKeys,
    TooManyKeys,
    check_script_flags,
    kill_running_script,
    script_command,
    subcommand_row,
)
from headrace.commands.spec import Command
from headrace.errors import CommandError, to_text
from headrace.keyspace.glob import matching_names
from headrace.keyspace.library_header import parse_library
from headrace.persistence.dump import BadPayload, WrongChecksum
from headrace.persistence.functions_dump import dump_libraries, parse_dumped_libraries
from headrace.scripting.script import FLAG_BITS, NO_WRITES

BUSY_SCRIPT_TEXT = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
APPEND, REPLACE, FLUSH = b"APPEND", b"REPLACE", b"FLUSH"


class FunctionNotFound(CommandError):
    text = "ERR Function not found"


class LibraryNotFound(CommandError):
    text = "ERR Library not found"


class BadKeyCount(CommandError):
    text = "ERR Bad number of keys provided"


class BadFlushOption(CommandError):
    text = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option"


def key_positions(argv: list[bytes]) -> list[int]:
    """Return the positions of the keys of FCALL."""
    return list(range(3, 3 + key_count(argv)))


@cython.cfunc
@cython.exceptval(-1, check=False)
def key_count(argv: list[bytes]) -> cython.Py_ssize_t:
    """Return the number of keys, which argv[2] gives. Raises CommandError."""
    count: cython.longlong
    try:
        count = arguments.parse_i64(argv[2])
    except CommandError:
        raise BadKeyCount() from None
    if count > len(argv) - 3:
        raise TooManyKeys()
    if count < 0:
        raise NegativeKeys()
    return count


def call_function(call: Call, read_only: bool) -> None:
    """Run a function with the keys and arguments of the request."""
    scripts: ScriptsInterface = call.engine.scripts
    scripts.send_to_monitors(call)
    function = scripts.function(call.argv[1])
    if function is None:
        raise FunctionNotFound()
    count = key_count(call.argv)
    check_script_flags(call, function.flags, read_only)
    scripts.run_function(call, function, function.flags | (NO_WRITES if read_only else 0), count)


def run_fcall(call: Call) -> None:
    """FCALL: run a function."""
    call_function(call, False)


def run_fcall_ro(call: Call) -> None:
    """FCALL_RO: run a function that does not write."""
    call_function(call, True)


def record_library_change(call: Call) -> None:
    """Count a change of the libraries, and record the request."""
    call.count_and_record_changes(1)


def run_load(call: Call) -> None:
    """FUNCTION LOAD: add a library, or replace it; reply with its name."""
    replace = len(call.argv) == 4
    if len(call.argv) > 4 or (replace and call.argv[2].upper() != REPLACE):
        raise CommandError(f"ERR Unknown option given: {to_text(call.argv[2])}")
    text = call.argv[-1]
    name, _ = parse_library(text)
    libraries = call.keyspace.libraries
    if name in libraries and not replace:
        raise CommandError(f"ERR Library '{to_text(name)}' already exists")
    if not call.replayed():  # a log contains only libraries that could be loaded
        call.engine.scripts.load_libraries({name: text})
    libraries[name] = text
    record_library_change(call)
    call.reply.bulk(name)


def run_delete(call: Call) -> None:
    """FUNCTION DELETE: remove a library."""
    if call.keyspace.libraries.pop(call.argv[2], None) is None:
        raise LibraryNotFound()
    record_library_change(call)
    call.reply.ok()


def run_flush(call: Call) -> None:
    """FUNCTION FLUSH: remove all libraries."""
    if len(call.argv) > 3:
        raise CommandError(
            f"ERR unknown subcommand or wrong number of arguments for '{to_text(call.argv[1])}'."
            " Try FUNCTION HELP."
        )
    if len(call.argv) == 3 and call.argv[2].upper() not in (b"SYNC", b"ASYNC"):
        raise BadFlushOption()
    call.keyspace.libraries.clear()
    record_library_change(call)
    call.reply.ok()


def run_dump(call: Call) -> None:
    """FUNCTION DUMP: reply with all libraries as one string."""
    texts = call.keyspace.libraries.values()
    call.reply.bulk(dump_libraries(texts, call.server.rdb_version(), call.server.rdb_compression()))


def run_restore(call: Call) -> None:
    """FUNCTION RESTORE: add the libraries of a string, all or none."""
    policy = call.argv[3].upper() if len(call.argv) > 3 else APPEND
    if len(call.argv) > 4:
        raise CommandError(
            f"ERR unknown subcommand or wrong number of arguments for '{to_text(call.argv[1])}'."
            " Try FUNCTION HELP."
        )
    if policy not in (APPEND, REPLACE, FLUSH):
        raise CommandError("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")
    try:
        texts = parse_dumped_libraries(call.argv[2])
    except WrongChecksum:
        raise WrongPayload() from None
    except BadPayload:
        raise CommandError("ERR failed loading library data") from None
    libraries = call.keyspace.libraries
    before = dict(libraries)
    if policy == FLUSH:
        libraries.clear()
    try:
        named: dict[bytes, bytes] = {}
        for text in texts:
            name, _ = parse_library(text)
            if name in named or (name in libraries and policy == APPEND):
                raise CommandError(f"ERR Library {to_text(name)} already exists")
            named[name] = text
        if not call.replayed():
            call.engine.scripts.load_libraries(named)
        libraries.update(named)
    except CommandError:
        libraries.clear()
        libraries.update(before)
        raise
    record_library_change(call)
    call.reply.ok()


def run_list(call: Call) -> None:
    """FUNCTION LIST: reply with the libraries and their functions."""
    pattern: bytes | None = None
    with_code = False
    words = iter(call.argv[2:])
    for word in words:
        if word.upper() == b"WITHCODE" and not with_code:
            with_code = True
        elif word.upper() == b"LIBRARYNAME" and pattern is None:
            pattern = next(words, None)
            if pattern is None:
                raise CommandError("ERR library name argument was not given")
        else:
            raise CommandError(f"ERR Unknown argument {to_text(word)}")
    libraries = call.keyspace.libraries
    names = list(libraries) if pattern is None else matching_names([pattern], list(libraries))
    found: dict[bytes, list[Function]] = {}
    for function in call.engine.scripts.functions() if libraries else ():
        found.setdefault(function.library, []).append(function)
    call.reply.array(len(names))
    for name in names:
        call.reply.map(4 if with_code else 3)
        call.reply.bulk(b"library_name")
        call.reply.bulk(name)
        call.reply.bulk(b"engine")
        call.reply.bulk(b"LUA")
        call.reply.bulk(b"functions")
        _write_functions(call, found.get(name, []))
        if with_code:
            call.reply.bulk(b"library_code")
            call.reply.bulk(libraries[name])


def _write_functions(call: Call, functions: list[Function]) -> None:
    call.reply.array(len(functions))
    for function in functions:
        call.reply.map(3)
        call.reply.bulk(b"name")
        call.reply.bulk(function.name)
        call.reply.bulk(b"description")
        if function.description is None:
            call.reply.null()
        else:
            call.reply.bulk(function.description)
        call.reply.bulk(b"flags")
        flags = [flag for flag, bit in FLAG_BITS.items() if function.flags & bit]
        call.reply.set(len(flags))
        for flag in flags:
            call.reply.simple(flag.encode())


def run_stats(call: Call) -> None:
    """FUNCTION STATS: reply with the function that runs, and the numbers of libraries and functions."""
    scripts = call.engine.scripts
    running = scripts.running
    if running is not None and not running.is_function:
        raise CommandError(BUSY_SCRIPT_TEXT)
    call.reply.map(2)
    call.reply.bulk(b"running_script")
    if running is None:
        call.reply.null()
    else:
        call.reply.map(3)
        call.reply.bulk(b"name")
        call.reply.bulk(running.name)
        call.reply.bulk(b"command")
        call.reply.array(len(running.argv))
        for word in running.argv:
            call.reply.bulk(word)
        call.reply.bulk(b"duration_ms")
        call.reply.integer(scripts.elapsed_ms())
    call.reply.bulk(b"engines")
    call.reply.map(1)
    call.reply.bulk(b"LUA")
    call.reply.map(2)
    call.reply.bulk(b"libraries_count")
    call.reply.integer(len(call.keyspace.libraries))
    call.reply.bulk(b"functions_count")
    call.reply.integer(scripts.function_count())


def run_kill(call: Call) -> None:
    """FUNCTION KILL: end the function that runs."""
    kill_running_script(call, True)


SUBCOMMANDS = [
    subcommand_row(
        "function|delete",
        3,
        run_delete,
        "write noscript",
        "7.0.0",
        "Removes a library.",
        "library-name",
        tips="request_policy:all_shards response_policy:all_succeeded",
    ),
    subcommand_row("function|dump", 2, run_dump, "noscript", "7.0.0", "Returns all libraries as one string."),
    subcommand_row(
        "function|flush",
        -2,
        run_flush,
        "write noscript",
        "7.0.0",
        "Removes all libraries.",
        "[ASYNC | SYNC]",
        "O(N), N being the number of libraries",
        tips="request_policy:all_shards response_policy:all_succeeded",
    ),
    subcommand_row(
        "function|kill",
        2,
        run_kill,
        "noscript allow_busy",
        "7.0.0",
        "Ends a function that runs too long.",
        tips="request_policy:all_shards response_policy:one_succeeded",
    ),
    subcommand_row(
        "function|list",
        -2,
        run_list,
        "noscript",
        "7.0.0",
        "Returns the libraries and their functions.",
        "[LIBRARYNAME library-name-pattern] [WITHCODE]",
        "O(N), N being the number of functions",
        tips="nondeterministic_output_order",
    ),
    subcommand_row(
        "function|load",
        -3,
        run_load,
        "write denyoom noscript",
        "7.0.0",
        "Adds a library.",
        "[REPLACE] function-code",
        "O(N), N being the length of the library",
        tips="request_policy:all_shards response_policy:all_succeeded",
    ),
    subcommand_row(
        "function|restore",
        -3,
        run_restore,
        "write denyoom noscript",
        "7.0.0",
        "Adds libraries that FUNCTION DUMP has returned.",
        "serialized-value [FLUSH | APPEND | REPLACE]",
        "O(N), N being the number of libraries",
        tips="request_policy:all_shards response_policy:all_succeeded",
    ),
    subcommand_row(
        "function|stats",
        2,
        run_stats,
        "noscript allow_busy",
        "7.0.0",
        "Returns the function that runs, and how many there are.",
        tips="nondeterministic_output request_policy:all_shards response_policy:special",
    ),
]

FUNCTION_SYNTAX = "function numkeys [key [key ...]] [arg [arg ...]]"

COMMANDS = [
    script_command("fcall", run_fcall, "7.0.0", "Runs a function.", FUNCTION_SYNTAX, find_keys=key_positions),
    script_command(
        "fcall_ro",
        run_fcall_ro,
        "7.0.0",
        "Runs a function that does not write.",
        FUNCTION_SYNTAX,
        True,
        key_positions,
    ),
    Command(
        "function",
        -2,
        None,
        "",
        group="scripting",
        since="7.0.0",
        summary="Libraries of functions.",
        complexity="Depends on the subcommand",
        subcommands=[*SUBCOMMANDS, help_row("function", SUBCOMMANDS, "7.0.0", "scripting")],
    ),
]
