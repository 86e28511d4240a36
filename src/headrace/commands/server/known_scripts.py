"""Scripts that run without Lua: three of redis-py's Lock, which task queues use, and one of `headrace trim`.

A script is identified by the digest of its text with each run of white space replaced by one blank, so its
indentation does not matter. Its effect is implemented here: that is faster, and needs no lupa.

    release          remove the lock's key, if it still holds the owner's token
    extend           prolong the lock by a number of milliseconds, or set its time to live
    reacquire        set the lock's time to live in milliseconds

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
from headrace.commands.stream import trim
from headrace.commands.string.set_options import InvalidExpireTime
from headrace.errors import to_text
from headrace.scripting.script import Script
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)

# Where the known scripts write.
WRITE_CALL_PATTERN = re.compile(rb"redis\.call\(\s*['\"](?:del|pexpire|xtrim)['\"]", re.IGNORECASE)


def check_write(call: Call, call_number: int = 0) -> None:
    """Raise CommandError if the running script may not write now.

    call_number: the index of the write among the write calls in the script's text, for the error's line.
    """
    gate = call.engine.write_gate
    if not gate.may_reject:
        return
    word = call.argv[1]
    digest = hashlib.sha1(word).hexdigest() if call.command.name == b"eval" else to_text(word.lower())
    line = call.engine.scripts.scripts[digest.encode()].write_call_lines[call_number]
    gate.check_script_write(call.session, f"script: {digest}, on @user_script:{line}.")


@cython.cfunc
def is_lock_held(call: Call, key: bytes, token: bytes) -> cython.bint:
    """Return whether the lock is held with this token: the key has it as value."""
    value = call.database.string(key)
    call.count_lookup(key, value)
    return value is not None and value == token


@cython.cfunc
def set_expiry_after(call: Call, key: bytes, base: cython.longlong, ms: cython.longlong) -> cython.void:
    """Set an existing key's expiry to base + ms milliseconds; remove the key if this time has passed."""
    check_write(call)
    if ms > I64_MAX - base:
        raise InvalidExpireTime("pexpire")
    if base + ms > call.now:
        expire.set_expiry(call, key, base + ms)
    else:
        expire.remove_key(call, key)


def release_lock(call: Call, keys: list[bytes], words: list[bytes]) -> int:
    """Remove the lock; return 1, or 0 if it is not held with the token. words: the token."""
    if not is_lock_held(call, keys[0], words[0]):
        return 0
    check_write(call)
    expire.remove_key(call, keys[0])
    return 1


def extend_lock(call: Call, keys: list[bytes], words: list[bytes]) -> int:
    """Prolong the lock; return 1, or 0 if it is not held with the token or has no expiry.

    words: the token, the milliseconds, and a mode. Mode 0 adds the milliseconds to the time that is left;
    any other mode counts them from now.
    """
    if not is_lock_held(call, keys[0], words[0]):
        return 0
    moment: cython.longlong = call.database.expiry(keys[0])
    if moment < 0:
        return 0
    ms: cython.longlong = arguments.parse_i64(words[1])
    set_expiry_after(call, keys[0], moment if words[2] == b"0" else call.now, ms)
    return 1


def reacquire_lock(call: Call, keys: list[bytes], words: list[bytes]) -> int:
    """Set the lock's time to live; return 1, or 0 if it is not held. words: the token, milliseconds."""
    if not is_lock_held(call, keys[0], words[0]):
        return 0
    set_expiry_after(call, keys[0], call.now, arguments.parse_i64(words[1]))
    return 1


def trim_archived(call: Call, keys: list[bytes], words: list[bytes]) -> int:
    """Trim entries that no group needs; return how many were removed, or -1 if the anchor is missing.

    In Lua the script returns -1, too, if a group needs an entry before that ID, because a server that runs it
    may have no ACKED. Here such entries stay and the others are removed: a busy group does not stop the trim.

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


TEXT_BYTES_MAX = 4096  # a longer script is none of them

# By digest: the function, and the minimum numbers of keys and of other arguments.
KnownScriptFunction = Callable[[Call, list[bytes], list[bytes]], int]
SCRIPTS_BY_DIGEST: dict[str, tuple[KnownScriptFunction, int, int]] = {
    "2aef8d7ce63503709a01cbf6ad6bb4b93d5c3909": (release_lock, 1, 1),
    "829408cc83d4524666232bd8beebe3bcf873ac70": (extend_lock, 1, 3),
    "042112cf75a3fdabb4e02600ce494eff4b2d2906": (reacquire_lock, 1, 2),
    "86e3222caceafa4c3305a23df73482337c70a727": (trim_archived, 1, 4),
}


# Commands that a user must be allowed to run for each, besides EVAL: see engine/authorization.py.
REQUIRED_COMMANDS: dict[KnownScriptFunction, tuple[bytes, ...]] = {
    release_lock: (b"get", b"del"),
    extend_lock: (b"get", b"pttl", b"pexpire"),
    reacquire_lock: (b"get", b"pexpire"),
    trim_archived: (b"xrange", b"xinfo|groups", b"xpending", b"xtrim"),
}


def mark_if_known(script: Script) -> None:
    """Set script.known_script_digest and script.write_call_lines if it is one of the scripts here."""
    if len(script.text) > TEXT_BYTES_MAX:
        return
    normal = hashlib.sha1(b" ".join(script.text.split())).hexdigest()
    if normal in SCRIPTS_BY_DIGEST:
        script.known_script_digest = normal
        lines = [
            script.text.count(b"\n", 0, found.start()) + 1
            for found in WRITE_CALL_PATTERN.finditer(script.text)
        ]
        script.write_call_lines = lines


def run_known(call: Call, script: Script, key_count: int) -> bool:
    """Run the script if it is one of those here and has enough arguments; return whether it was run."""
    if script.known_script_digest is None:
        return False
    run, keys_least, words_least = SCRIPTS_BY_DIGEST[script.known_script_digest]
    keys, words = call.argv[3 : 3 + key_count], call.argv[3 + key_count :]
    if len(keys) < keys_least or len(words) < words_least:
        return False
    call.engine.write_gate.check_script(call.session)
    if call.session.restricted_user is not None:
        call.engine.auth.check_commands(call.session, REQUIRED_COMMANDS[run], keys[0], call.now)
    call.reply.integer(run(call, keys, words))
    return True
