"""CONFIG, MEMORY, TIME and SHUTDOWN: commands for the server's operator."""

from __future__ import annotations

import cython

from headrace.commands.arguments import Arguments
from headrace.commands.call import Call
from headrace.commands.command_rows import server_command, server_container
from headrace.commands.server import memory_report
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax, to_text
from headrace.keyspace.blocking import never_serve
from headrace.limits import KEY_OVERHEAD_BYTES
from headrace.streams import size
from headrace.streams.stream import Stream
from headrace.structures import footprint

# Settings with one of these in their names are secret.
SECRET_NAME_PARTS = (b"pass", b"masterauth", b"masteruser")


def run_config_get(call: Call) -> None:
    """CONFIG GET: reply with the matching settings as a map."""
    found = call.server.config_get(call.argv[2:])
    call.reply.map(len(found))
    for name, value in found:
        call.reply.bulk(name)
        call.reply.bulk(value)


def run_config_set(call: Call) -> None:
    """CONFIG SET: apply all of the given settings, or none."""
    words = call.argv[2:]
    if len(words) % 2:
        raise InvalidSyntax()
    pairs = list(zip(words[::2], words[1::2], strict=True))
    seen: set[bytes] = set()
    known = {name for name, _ in call.server.config_get([b"*"])}
    for name, _ in pairs:
        lower = name.lower()
        if lower in seen and lower in known:
            shown = to_text(name)
            text = f"ERR CONFIG SET failed (possibly related to argument '{shown}') - duplicate parameter"
            raise CommandError(text)
        seen.add(lower)
    call.server.config_set(pairs)
    call.engine.timing.refresh()
    call.reply.ok()


def secret_value_positions(argv: list[bytes]) -> list[int]:
    """Return the positions of the values of secret settings in a CONFIG SET."""
    return [
        at + 1
        for at in range(2, len(argv) - 1)
        if any(secret in argv[at].lower() for secret in SECRET_NAME_PARTS)
    ]


def run_config_resetstat(call: Call) -> None:
    """CONFIG RESETSTAT: set the counters of INFO to zero."""
    call.engine.stats.reset()
    call.keyspace.hits = 0
    call.keyspace.misses = 0
    call.keyspace.expired_count = 0
    call.engine.write_gate.eviction.reset_counters()
    call.engine.auth.acl_log.reset_counters()
    call.server.config_resetstat()
    call.reply.ok()


def run_config_rewrite(call: Call) -> None:
    """CONFIG REWRITE: write the settings to the configuration file."""
    call.server.config_rewrite()
    call.reply.ok()


def memory_of(key: bytes, value: object) -> int:
    """Return the bytes that key and value take, including the dictionary entry."""
    own = size.memory_bytes(value) if isinstance(value, Stream) else footprint.object_bytes(value)
    return KEY_OVERHEAD_BYTES + footprint.object_bytes(key) + own


def run_memory_usage(call: Call) -> None:
    """MEMORY USAGE: reply with the bytes of a key, or null. SAMPLES has no effect: the number is exact."""
    arguments: Arguments = call.arguments()
    key = arguments.next_argument()
    while arguments.has_more():
        if not arguments.take_option(b"SAMPLES"):
            raise InvalidSyntax()
        if arguments.next_integer() < 0:
            raise InvalidSyntax()
    call.keyspace.counts_lookups = False  # Redis does not count this one
    value = call.database.find(key)
    if value is None:
        call.reply.null()
    else:
        call.reply.integer(memory_of(key, value))


def run_memory_purge(call: Call) -> None:
    """MEMORY PURGE: return free memory to the system."""
    call.server.purge_memory()
    call.reply.ok()


def run_time(call: Call) -> None:
    """TIME: reply with seconds and microseconds since 1970."""
    call.reply.array(2)
    call.reply.bulk(b"%d" % (call.now // 1000))
    call.reply.bulk(b"%d" % (call.now % 1000 * 1000 + call.server.sub_ms_microseconds()))


def run_shutdown(call: Call) -> None:
    """SHUTDOWN: stop the program. There is no reply, unless that fails."""
    arguments: Arguments = call.arguments()
    save: bool | None = None
    now = force = False
    if arguments.remaining_count() == 1 and arguments.take_flag(b"ABORT"):
        call.server.replication.abort_shutdown()
        call.reply.ok()
        return
    while arguments.has_more():
        if save is not False and arguments.take_flag(b"SAVE"):
            save = True
        elif save is not True and arguments.take_flag(b"NOSAVE"):
            save = False
        elif arguments.take_flag(b"NOW"):
            now = True
        elif arguments.take_flag(b"FORCE"):
            force = True
        else:
            raise InvalidSyntax()
    server = call.server
    if call.engine.scripts.running is not None:
        call.engine.scripts.check_shutdown_allowed(save is False)
        call.engine.scripts.abandon()
        now = force = True  # memory holds a part of the script's changes: there is no way back
    if not (now or force) and server.replication.delay_shutdown(lambda: server.shutdown(save), call.session):
        call.wait([], 0, never_serve, "null")
        return
    server.shutdown(save, now, force)
    call.session.closing = True


CONFIG_SUBCOMMANDS = [
    server_command(
        "config|get", -3, run_config_get, "2.0.0", "Returns settings.", "parameter [parameter ...]"
    ),
    server_command(
        "config|set",
        -4,
        run_config_set,
        "2.0.0",
        "Changes settings.",
        "parameter value [parameter value ...]",
        tips="request_policy:all_nodes response_policy:all_succeeded",
        secrets=secret_value_positions,
    ),
    server_command(
        "config|resetstat",
        2,
        run_config_resetstat,
        "2.0.0",
        "Sets the counters of INFO to zero.",
        tips="request_policy:all_nodes response_policy:all_succeeded",
    ),
    server_command(
        "config|rewrite",
        2,
        run_config_rewrite,
        "2.8.0",
        "Writes the settings to the configuration file.",
        tips="request_policy:all_nodes response_policy:all_succeeded",
    ),
]

MEMORY_SUBCOMMANDS = [
    Command(
        "memory|usage",
        -3,
        run_memory_usage,
        "readonly",
        keys="2: RO",
        group="server",
        since="4.0.0",
        summary="Returns the memory of a key in bytes.",
        syntax="key [SAMPLES count]",
    ),
    server_command(
        "memory|stats",
        2,
        memory_report.run_stats,
        "4.0.0",
        "Returns memory figures.",
        flags="",
        tips="nondeterministic_output request_policy:all_shards response_policy:special",
    ),
    server_command(
        "memory|doctor",
        2,
        memory_report.run_doctor,
        "4.0.0",
        "Reports memory problems.",
        flags="",
        tips="nondeterministic_output request_policy:all_shards response_policy:special",
    ),
    server_command(
        "memory|malloc-stats",
        2,
        memory_report.run_malloc_stats,
        "4.0.0",
        "Reports memory figures as text.",
        flags="",
        tips="nondeterministic_output request_policy:all_shards response_policy:special",
    ),
    server_command(
        "memory|purge",
        2,
        run_memory_purge,
        "4.0.0",
        "Returns free memory to the system.",
        flags="",
        tips="request_policy:all_shards response_policy:all_succeeded",
    ),
]

COMMANDS = [
    server_container("config", "2.0.0", "The server's settings.", CONFIG_SUBCOMMANDS),
    server_container("memory", "4.0.0", "Memory figures.", MEMORY_SUBCOMMANDS),
    server_command(
        "time",
        1,
        run_time,
        "2.6.0",
        "Returns the server's time.",
        flags="loading stale fast",
        tips="nondeterministic_output",
    ),
    server_command(
        "shutdown",
        -1,
        run_shutdown,
        "1.0.0",
        "Stops the server.",
        "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
        "admin noscript loading stale no_multi allow_busy",
    ),
]
