"""DEBUG: commands for tests. Rejected unless enable-debug-command allows them."""

from __future__ import annotations

from collections.abc import Callable

from headrace.commands.arguments import Arguments, parse_double
from headrace.commands.call import Call
from headrace.commands.keys import digest
from headrace.commands.keys import object as encodings
from headrace.commands.keys.dump import payload_of
from headrace.commands.server.debug_protocol import run_protocol
from headrace.commands.spec import Command
from headrace.errors import CommandError, NoSuchKey, UnknownSubcommand, to_text
from headrace.keyspace.glob import Glob

PAYLOAD_FRAME_BYTES = 1 + 2 + 8  # type, version and checksum around a dumped value
LRU_CLOCK_MAX = (1 << 24) - 1  # OBJECT's clock of seconds wraps there


class DebugNotAllowed(CommandError):
    text = (
        'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it'
        " from a local connection, otherwise you need to set this option in the configuration file, and then"
        " restart the server."
    )


class BadReloadOption(CommandError):
    text = "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options."


def run_digest(call: Call) -> None:
    """DEBUG DIGEST: reply with the digest of all databases."""
    call.reply.simple(digest.digest_of_keyspace(call.keyspace).hex().encode())


def run_digest_value(call: Call) -> None:
    """DEBUG DIGEST-VALUE: reply with the digests of values, zeros for a missing key."""
    call.reply.array(len(call.argv) - 2)
    for key in call.argv[2:]:
        value = call.database.find(key)
        found = bytes(digest.DIGEST_BYTES) if value is None else digest.digest_of_value(value, call.now)
        call.reply.simple(found.hex().encode())


def run_error(call: Call) -> None:
    """DEBUG ERROR: reply with the text as an error."""
    raise CommandError(to_text(call.argv[2]))


def run_loadaof(call: Call) -> None:
    """DEBUG LOADAOF: load all data from the log."""
    call.server.reload_log(call.now)
    call.reply.ok()


def run_object(call: Call) -> None:
    """DEBUG OBJECT: reply with a line about a value."""
    value = call.database.find(call.argv[2])
    if value is None:
        raise NoSuchKey()
    encoding = encodings.encoding(value).decode()
    length = len(payload_of(call, value)) - PAYLOAD_FRAME_BYTES
    clock = call.now // 1000 & LRU_CLOCK_MAX
    line = (
        f"Value at:{id(value):#x} refcount:1 encoding:{encoding} serializedlength:{length}"
        f" lru:{clock} lru_seconds_idle:0"
    )
    call.reply.simple(line.encode())


def run_reload(call: Call) -> None:
    """DEBUG RELOAD: take a snapshot and load all data from it."""
    arguments = Arguments(call.argv, 2)
    merge = False
    flush = save = True
    while arguments.has_more():
        if arguments.take_flag(b"MERGE"):
            merge = True
        elif arguments.take_flag(b"NOFLUSH"):
            flush = False
        elif arguments.take_flag(b"NOSAVE"):
            save = False
        else:
            raise BadReloadOption()
    call.server.reload(call.now, flush, save, merge)
    call.reply.ok()


def run_set_active_expire(call: Call) -> None:
    """DEBUG SET-ACTIVE-EXPIRE: delete expired keys in the background, or only on access."""
    call.engine.set_active_expiry(call.argv[2] != b"0")
    call.reply.ok()


def run_sleep(call: Call) -> None:
    """DEBUG SLEEP: block the server for a number of seconds."""
    call.server.sleep(max(parse_double(call.argv[2]), 0.0))
    call.reply.ok()


def run_stringmatch_len(call: Call) -> None:
    """DEBUG STRINGMATCH-LEN: reply whether the pattern matches the string, as in KEYS."""
    call.reply.integer(1 if Glob(call.argv[2]).matches(call.argv[3]) else 0)


def run_help(call: Call) -> None:
    """DEBUG HELP: reply with the subcommands."""
    call.reply.array(len(HELP))
    for line in HELP:
        call.reply.simple(line.encode())


# Minimum and maximum number of arguments, DEBUG included; function; arguments; purpose.
SUBCOMMANDS: dict[bytes, tuple[int, int, Callable[[Call], None], str, str]] = {
    b"digest": (2, 2, run_digest, "", "A digest of all databases: the same for the same data."),
    b"digest-value": (3, 1 << 31, run_digest_value, "key [key ...]", "Digests of single values."),
    b"error": (3, 3, run_error, "text", "Returns the text as an error, for tests of clients."),
    b"help": (2, 2, run_help, "", "Prints this list."),
    b"loadaof": (2, 2, run_loadaof, "", "Drops all keys and replays the log."),
    b"object": (3, 3, run_object, "key", "A line about a value, in Redis's format."),
    b"protocol": (3, 3, run_protocol, "type", "Returns a value of a type of the protocol."),
    b"reload": (
        2,
        1 << 31,
        run_reload,
        "[MERGE] [NOFLUSH] [NOSAVE]",
        "Takes a snapshot, drops all keys and loads the snapshot.",
    ),
    b"set-active-expire": (
        3,
        3,
        run_set_active_expire,
        "<0|1>",
        "Whether expired keys are deleted in the background.",
    ),
    b"sleep": (3, 3, run_sleep, "seconds", "Blocks the server for a while."),
    b"stringmatch-len": (4, 4, run_stringmatch_len, "pattern string", "Whether a glob pattern matches."),
}

HELP = ["DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
for _name, _row in SUBCOMMANDS.items():
    HELP += [f"{_name.decode().upper()} {_row[3]}".rstrip(), f"    {_row[4]}"]


def run_debug(call: Call) -> None:
    """DEBUG: run the subcommand, if the session may."""
    if not call.server.debug_allowed(call.session):
        raise DebugNotAllowed()
    name = call.argv[1].lower()
    if name not in SUBCOMMANDS:
        raise UnknownSubcommand("DEBUG", call.argv[1])
    least, most, run, _, _ = SUBCOMMANDS[name]
    if not least <= len(call.argv) <= most:
        raise UnknownSubcommand("DEBUG", call.argv[1])
    run(call)


COMMANDS = [
    Command(
        "debug",
        -2,
        run_debug,
        "admin noscript loading stale",
        group="server",
        summary="Commands for tests of a server; see DEBUG HELP.",
        syntax="subcommand [arg ...]",
        complexity="Depends on the subcommand",
    ),
]
