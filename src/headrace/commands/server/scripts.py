"""EVAL, EVALSHA and SCRIPT: no Lua, but the three scripts of redis-py's Lock, which task queues use, and the
script by which `headrace trim` trims.

A script is identified by the digest of its text with each run of white space replaced by one blank, so its
indentation does not matter. Its effect is implemented here. Any other script is rejected.

    release          remove the lock's key, if it still holds the owner's token
    extend           prolong the lock: by so many milliseconds, or to so many from now on
    reacquire        set the lock's time to live to so many milliseconds from now on

    trim_archived    trim entries below an ID that no group needs, if a certain entry still exists
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

import cython

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.keys import expire
from headrace.commands.rows import help_row
from headrace.commands.spec import Command
from headrace.commands.stream import trim
from headrace.errors import CommandError, InvalidSyntax, to_text
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId


class TooManyKeys(CommandError):
    text = "ERR Number of keys can't be greater than number of args"


class NegativeKeys(CommandError):
    text = "ERR Number of keys can't be negative"


class NotLoaded(CommandError):
    text = "NOSCRIPT No matching script. Please use EVAL."


class NotKnown(CommandError):
    text = "ERR Lua is not run here: the only scripts known are those of redis-py's Lock and of headrace trim"


class BadFlush(CommandError):
    text = "ERR SCRIPT FLUSH only support SYNC|ASYNC option"


# Where the known scripts write.
WRITES = re.compile(rb"redis\.call\(\s*['\"](?:del|pexpire|xtrim)['\"]", re.IGNORECASE)


def check_write(call: Call, call_number: int = 0) -> None:
    """Raise CommandError if a script may not write now; call_number: which of its writing calls it is."""
    gate = call.engine.write_gate
    if not gate.shut:
        return
    word = call.argv[1]
    digest = hashlib.sha1(word).hexdigest() if call.command.name == b"eval" else to_text(word.lower())
    line = call.engine.scripts[digest.encode()][1][call_number]
    gate.check_script_write(call.session, f"script: {digest}, on @user_script:{line}.")


@cython.cfunc
def is_held(call: Call, key: bytes, token: bytes) -> cython.bint:
    """Return whether the key holds the token."""
    value = call.database.string(key)
    if value is None:
        call.notify_miss(key)
        return False
    return value == token


@cython.cfunc
def set_time_to_live(call: Call, key: bytes, ms: cython.longlong) -> cython.void:
    """Set an existing key's expiry to so many milliseconds from now on."""
    check_write(call)
    if ms > 0:
        expire.set_expiry(call, key, call.now + ms)
    else:
        expire.remove_key(call, key)


def release(call: Call, keys: list[bytes], words: list[bytes]) -> int:
    """Remove the lock. words: the token."""
    if not is_held(call, keys[0], words[0]):
        return 0
    check_write(call)
    expire.remove_key(call, keys[0])
    return 1


def extend(call: Call, keys: list[bytes], words: list[bytes]) -> int:
    """Prolong the lock; one without expiry is not changed.

    words: the token, milliseconds, and 0 to add them to the time that is left.
    """
    if not is_held(call, keys[0], words[0]):
        return 0
    moment: cython.longlong = call.database.expiry(keys[0])
    if moment < 0:
        return 0
    ms: cython.longlong = arguments.parse_i64(words[1])
    set_time_to_live(call, keys[0], ms + moment - call.now if words[2] == b"0" else ms)
    return 1


def reacquire(call: Call, keys: list[bytes], words: list[bytes]) -> int:
    """Set the lock's time to live. words: the token, milliseconds."""
    if not is_held(call, keys[0], words[0]):
        return 0
    set_time_to_live(call, keys[0], arguments.parse_i64(words[1]))
    return 1


def trim_archived(call: Call, keys: list[bytes], words: list[bytes]) -> int:
    """Trim entries that no group needs; return how many were removed, or -1 if the anchor is missing.

    words: the ID to trim up to, the anchor's ID, `=` or `~`, and for `~` the maximum number of entries.
    """
    stream: Stream | None = call.database.stream(keys[0])
    anchor: StreamId = stream_id.parse(words[1], 0)
    if stream is None or not stream.contains(anchor.ms, anchor.seq):
        return -1
    check_write(call, 0 if words[2] == b"=" else 1)
    limit = [b"LIMIT", words[3]] if words[2] == b"~" else []
    call.argv = [b"XTRIM", keys[0], b"MINID", words[2], words[0], *limit, b"ACKED"]
    return trim.trim_stream(call)


# By digest: the function, and the minimum numbers of keys and of other arguments.
Script = Callable[[Call, list[bytes], list[bytes]], int]
SCRIPTS: dict[str, tuple[Script, int, int]] = {
    "2aef8d7ce63503709a01cbf6ad6bb4b93d5c3909": (release, 1, 1),
    "829408cc83d4524666232bd8beebe3bcf873ac70": (extend, 1, 3),
    "042112cf75a3fdabb4e02600ce494eff4b2d2906": (reacquire, 1, 2),
    "86e3222caceafa4c3305a23df73482337c70a727": (trim_archived, 1, 4),
}


# Commands that a user must be allowed to run for each, besides EVAL: see engine/authorization.py.
REQUIRED_COMMANDS: dict[Script, tuple[bytes, ...]] = {
    release: (b"get", b"del"),
    extend: (b"get", b"pttl", b"pexpire"),
    reacquire: (b"get", b"pexpire"),
    trim_archived: (b"xrange", b"xinfo|groups", b"xpending", b"xtrim"),
}


def load_script(call: Call, script: bytes) -> bytes:
    """Register the script; return the digest for EVALSHA. Raises NotKnown for any other script."""
    normal = hashlib.sha1(b" ".join(script.split())).hexdigest()
    if normal not in SCRIPTS:
        raise NotKnown()
    digest = hashlib.sha1(script).hexdigest().encode()
    lines = [script.count(b"\n", 0, found.start()) + 1 for found in WRITES.finditer(script)]
    call.engine.scripts[digest] = normal, lines
    return digest


def keys_of(argv: list[bytes]) -> list[int]:
    """Return the positions of the keys of EVAL and EVALSHA; argv[2] is their number."""
    count = arguments.parse_i64(argv[2])
    if count > len(argv) - 3:
        raise TooManyKeys()
    if count < 0:
        raise NegativeKeys()
    return list(range(3, 3 + count))


def run_known(call: Call, digest: bytes) -> None:
    """Run the script with that digest."""
    count = len(keys_of(call.argv))
    if digest not in call.engine.scripts:
        raise NotLoaded()
    call.engine.write_gate.check_script(call.session)
    script, keys_least, words_least = SCRIPTS[call.engine.scripts[digest][0]]
    keys, words = call.argv[3 : 3 + count], call.argv[3 + count :]
    if len(keys) < keys_least or len(words) < words_least:
        raise InvalidSyntax()
    if call.session.restricted_user is not None:
        call.engine.auth.check_commands(call.session, REQUIRED_COMMANDS[script], call.now)
    call.reply.integer(script(call, keys, words))


def run_eval(call: Call) -> None:
    """EVAL: run the script, if it is known."""
    keys_of(call.argv)
    run_known(call, load_script(call, call.argv[1]))


def run_evalsha(call: Call) -> None:
    """EVALSHA: run a loaded script."""
    run_known(call, call.argv[1].lower())


def run_load(call: Call) -> None:
    """SCRIPT LOAD: load the script; reply with its digest."""
    call.reply.bulk(load_script(call, call.argv[2]))


def run_exists(call: Call) -> None:
    """SCRIPT EXISTS: reply 1 for each digest that is loaded, else 0."""
    digests = call.argv[2:]
    call.reply.array(len(digests))
    for digest in digests:
        call.reply.integer(1 if digest.lower() in call.engine.scripts else 0)


def run_flush(call: Call) -> None:
    """SCRIPT FLUSH: unload all scripts."""
    if len(call.argv) > 3 or (len(call.argv) == 3 and call.argv[2].upper() not in (b"SYNC", b"ASYNC")):
        raise BadFlush()
    call.engine.scripts.clear()
    call.reply.ok()


SUBCOMMANDS = [
    Command(
        "script|exists",
        -3,
        run_exists,
        "noscript",
        group="scripting",
        since="2.6.0",
        summary="Reports which scripts are loaded.",
        syntax="sha1 [sha1 ...]",
        complexity="O(N), N being the number of digests",
        categories="scripting",
    ),
    Command(
        "script|flush",
        -2,
        run_flush,
        "noscript",
        group="scripting",
        since="2.6.0",
        summary="Unloads all scripts.",
        syntax="[ASYNC | SYNC]",
        complexity="O(N), N being the number of scripts",
        categories="scripting",
    ),
    Command(
        "script|load",
        3,
        run_load,
        "noscript stale",
        group="scripting",
        since="2.6.0",
        summary="Loads a known script and returns its digest.",
        syntax="script",
        complexity="O(N), N being the length of the script",
        categories="scripting",
    ),
]

COMMANDS = [
    Command(
        "eval",
        -3,
        run_eval,
        "noscript stale skip_monitor no_mandatory_keys",
        keys=keys_of,
        group="scripting",
        since="2.6.0",
        summary="Runs a known script: those of redis-py's Lock and of headrace trim.",
        syntax="script numkeys [key [key ...]] [arg [arg ...]]",
        complexity="O(N), N being the length of the script",
        categories="scripting",
    ),
    Command(
        "evalsha",
        -3,
        run_evalsha,
        "noscript stale skip_monitor no_mandatory_keys",
        keys=keys_of,
        group="scripting",
        since="2.6.0",
        summary="Runs a loaded script by its digest.",
        syntax="sha1 numkeys [key [key ...]] [arg [arg ...]]",
        categories="scripting",
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
