"""EVAL, EVALSHA, their read-only forms, and SCRIPT: scripts in Lua.

Scripts of redis-py's Lock and of `headrace trim` run without Lua: see known_scripts.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import cython

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.command_rows import help_row
from headrace.commands.scripts_interface import KILLED_TEXT, ScriptsInterface
from headrace.commands.server import known_scripts
from headrace.commands.spec import Command
from headrace.errors import CommandError
from headrace.scripting.script import ALLOW_OOM, ALLOW_STALE, NO_WRITES, Script

DIGEST_LENGTH = 40


class TooManyKeys(CommandError):
    text = "ERR Number of keys can't be greater than number of args"


class NegativeKeys(CommandError):
    text = "ERR Number of keys can't be negative"


class ScriptNotLoaded(CommandError):
    text = "NOSCRIPT No matching script. Please use EVAL."


class BadFlushOption(CommandError):
    text = "ERR SCRIPT FLUSH only support SYNC|ASYNC option"


class NoScriptRunning(CommandError):
    text = "NOTBUSY No scripts in execution right now."


class Unkillable(CommandError):
    text = (
        "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait"
        " the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command."
    )


class ScriptNotReadOnly(CommandError):
    text = "ERR Can not execute a script with write flag using *_ro command."


def key_positions(argv: list[bytes]) -> list[int]:
    """Return the positions of the keys of EVAL and EVALSHA."""
    return list(range(3, 3 + key_count(argv)))


@cython.cfunc
@cython.exceptval(-1, check=False)
def key_count(argv: list[bytes]) -> cython.Py_ssize_t:
    """Return the number of keys, which argv[2] gives. Raises CommandError."""
    count: cython.longlong = arguments.parse_i64(argv[2])
    if count > len(argv) - 3:
        raise TooManyKeys()
    if count < 0:
        raise NegativeKeys()
    return count


def load_script(call: Call, text: bytes, keeps: bool) -> Script:
    """Return the script with that text, and load it if necessary. Raises CommandError.

    keeps: never drop it to make room for others (SCRIPT LOAD).
    """
    digest = hashlib.sha1(text).hexdigest().encode()
    scripts = call.engine.scripts
    script = scripts.scripts.get(digest)
    if script is None:
        script = Script(digest, text)
        known_scripts.mark_if_known(script)
        if script.known_script_digest is None:
            scripts.compile(script)
        scripts.add(script)
    if keeps:
        scripts.never_evict(script)
    return script


def check_script_flags(call: Call, flags: int, read_only: bool) -> None:
    """Raise CommandError if a script or function with these flags may not run now."""
    gate = call.engine.write_gate
    if not flags & NO_WRITES:
        gate.check_writing_script_start(call.session, bool(flags & ALLOW_OOM))
    if not flags & ALLOW_STALE:
        gate.check_script(call.session)
    if read_only and not flags & NO_WRITES:
        raise ScriptNotReadOnly()


@cython.cfunc
def run_script(
    call: Call,
    scripts: ScriptsInterface,
    script: Script,
    count: cython.Py_ssize_t,
    read_only: cython.bint,
) -> cython.void:
    """Run a loaded script with the arguments of the request, of which `count` are keys."""
    flags: cython.longlong
    if (
        not read_only
        and script.known_script_digest is not None
        and known_scripts.run_known(call, script, count)
    ):
        return
    flags = script.flags
    if script.declares_flags:
        check_script_flags(call, flags, read_only)
    else:
        scripts.check_may_run(call.session)
        flags = NO_WRITES if read_only else 0
    scripts.run_script(call, script, flags, count)


@cython.cfunc
def evaluate(call: Call, read_only: cython.bint) -> cython.void:
    """Run the script whose text is given."""
    scripts: ScriptsInterface = call.engine.scripts
    scripts.send_to_monitors(call)
    count: cython.Py_ssize_t = key_count(call.argv)
    run_script(call, scripts, load_script(call, call.argv[1], False), count, read_only)


@cython.cfunc
def evaluate_digest(call: Call, read_only: cython.bint) -> cython.void:
    """Run the script whose digest is given."""
    scripts: ScriptsInterface = call.engine.scripts
    scripts.send_to_monitors(call)
    count: cython.Py_ssize_t = key_count(call.argv)
    digest: bytes = call.argv[1]
    script: Script | None = None
    if len(digest) == DIGEST_LENGTH:
        script = scripts.scripts.get(digest)
        if script is None:
            script = scripts.scripts.get(digest.lower())
    if script is None:
        raise ScriptNotLoaded()
    run_script(call, scripts, script, count, read_only)


def run_eval(call: Call) -> None:
    """EVAL: run a script."""
    evaluate(call, False)


def run_evalsha(call: Call) -> None:
    """EVALSHA: run a loaded script."""
    evaluate_digest(call, False)


def run_eval_ro(call: Call) -> None:
    """EVAL_RO: run a script that does not write."""
    evaluate(call, True)


def run_evalsha_ro(call: Call) -> None:
    """EVALSHA_RO: run a loaded script that does not write."""
    evaluate_digest(call, True)


def run_load(call: Call) -> None:
    """SCRIPT LOAD: load the script; reply with its digest."""
    call.reply.bulk(load_script(call, call.argv[2], True).digest)


def run_exists(call: Call) -> None:
    """SCRIPT EXISTS: reply 1 for each digest that is loaded, else 0."""
    digests = call.argv[2:]
    call.reply.array(len(digests))
    for digest in digests:
        call.reply.integer(1 if digest.lower() in call.engine.scripts.scripts else 0)


def run_flush(call: Call) -> None:
    """SCRIPT FLUSH: unload all scripts."""
    if len(call.argv) > 3 or (len(call.argv) == 3 and call.argv[2].upper() not in (b"SYNC", b"ASYNC")):
        raise BadFlushOption()
    call.engine.scripts.flush()
    call.reply.ok()


def kill_running_script(call: Call, is_function: bool) -> None:
    """End the script, or with `is_function` the function, that is running.

    Raises CommandError if none is running, it has written, or it is of the other kind.
    """
    running = call.engine.scripts.running
    if running is None:
        raise NoScriptRunning()
    if running.wrote:
        raise Unkillable()
    if running.is_function != is_function:
        other = "FUNCTION" if running.is_function else "SCRIPT"
        raise CommandError(
            f"BUSY Redis is busy running a script. You can only call {other} KILL or SHUTDOWN NOSAVE."
        )
    running.end_reason = KILLED_TEXT
    call.reply.ok()


def run_kill(call: Call) -> None:
    """SCRIPT KILL: end the script that runs."""
    kill_running_script(call, False)


def subcommand_row(
    name: str,
    arity: int,
    run: object,
    flags: str,
    since: str,
    summary: str,
    syntax: str = "",
    cost: str = "O(1)",
    tips: str = "",
) -> Command:
    """Return the row of a subcommand of SCRIPT or FUNCTION."""
    return Command(
        name,
        arity,
        run,  # type: ignore[arg-type]
        flags,
        tips=tips,
        group="scripting",
        since=since,
        summary=summary,
        syntax=syntax,
        complexity=cost,
        categories="scripting",
    )


SUBCOMMANDS = [
    subcommand_row(
        "script|exists",
        -3,
        run_exists,
        "noscript",
        "2.6.0",
        "Reports which scripts are loaded.",
        "sha1 [sha1 ...]",
        "O(N), N being the number of digests",
        tips="request_policy:all_shards response_policy:agg_logical_and",
    ),
    subcommand_row(
        "script|flush",
        -2,
        run_flush,
        "noscript",
        "2.6.0",
        "Unloads all scripts.",
        "[ASYNC | SYNC]",
        "O(N), N being the number of scripts",
        tips="request_policy:all_nodes response_policy:all_succeeded",
    ),
    subcommand_row(
        "script|kill",
        2,
        run_kill,
        "noscript allow_busy",
        "2.6.0",
        "Ends a script that runs too long.",
        tips="request_policy:all_shards response_policy:one_succeeded",
    ),
    subcommand_row(
        "script|load",
        3,
        run_load,
        "noscript stale",
        "2.6.0",
        "Loads a script and returns its digest.",
        "script",
        "O(N), N being the length of the script",
        tips="request_policy:all_nodes response_policy:all_succeeded",
    ),
]

EVAL_FLAGS = "noscript stale skip_monitor no_mandatory_keys"
SCRIPT_SYNTAX = "script numkeys [key [key ...]] [arg [arg ...]]"
DIGEST_SYNTAX = "sha1 numkeys [key [key ...]] [arg [arg ...]]"


def script_command(
    name: str,
    run: object,
    since: str,
    summary: str,
    syntax: str,
    read_only: bool = False,
    find_keys: Callable[[list[bytes]], list[int]] = key_positions,
) -> Command:
    """Return the row of a command that runs a script or function."""
    return Command(
        name,
        -3,
        run,  # type: ignore[arg-type]
        EVAL_FLAGS + (" readonly" if read_only else ""),
        keys="numkeys 2: RO access" if read_only else "numkeys 2: RW access update",
        find_keys=find_keys,
        group="scripting",
        since=since,
        summary=summary,
        syntax=syntax,
        complexity="Depends on the script that is executed.",
        categories="scripting",
    )


COMMANDS = [
    script_command("eval", run_eval, "2.6.0", "Runs a script in Lua.", SCRIPT_SYNTAX),
    script_command("evalsha", run_evalsha, "2.6.0", "Runs a loaded script by its digest.", DIGEST_SYNTAX),
    script_command(
        "eval_ro", run_eval_ro, "7.0.0", "Runs a script in Lua that does not write.", SCRIPT_SYNTAX, True
    ),
    script_command(
        "evalsha_ro",
        run_evalsha_ro,
        "7.0.0",
        "Runs a loaded script that does not write, by its digest.",
        DIGEST_SYNTAX,
        True,
    ),
    Command(
        "script",
        -2,
        None,
        "",
        group="scripting",
        since="2.6.0",
        summary="The scripts that are loaded.",
        complexity="Depends on the subcommand",
        subcommands=[*SUBCOMMANDS, help_row("script", SUBCOMMANDS, "5.0.0", "scripting")],
    ),
]
