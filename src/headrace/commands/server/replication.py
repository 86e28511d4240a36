"""REPLICAOF, ROLE, WAIT, FAILOVER, and what replicas send: REPLCONF, PSYNC, SYNC.

    primary                            replica
       │ ◀── REPLCONF listening-port 7001 capa psync2 ── │      +OK
       │ ◀── PSYNC <replication ID> <next offset> ────── │      +CONTINUE or +FULLRESYNC: from the server
       │ ─── stream of effects ────────────────────────▶ │
       │ ◀── REPLCONF ACK <applied> FACK <synced> ────── │      no reply; it may end a WAIT

WAIT blocks until enough replicas have acknowledged the offset that the stream had when it was called.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headrace.commands.arguments import Arguments, is_keyword, parse_i64
from headrace.commands.call import Call, write_wait_reply
from headrace.commands.command_rows import server_command
from headrace.commands.connection.client import parse_deadline
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax, NotAnInteger, to_text
from headrace.resp.inline import split_line

# Not a key, but used as one: clients that wait for replicas wait for it, in database 0, as for SYNCED.
ACKNOWLEDGEMENT_WAIT_KEY = b"\0acknowledged"

PORT_MAX = 65535
ADDRESS_PATTERN = re.compile(rb"[0-9A-Za-z.:%_-]*")  # INFO shows it between commas in one line
ADDRESS_BYTES_MAX = 255  # bytes
REPLCONF_OPTIONS = frozenset(
    (
        b"listening-port",
        b"ip-address",
        b"capa",
        b"rdb-only",
        b"rdb-filter-only",
        b"version",
        b"headrace-translation",
    )
)


class BadPort(CommandError):
    text = "ERR Invalid master port"


class CallerIsReplica(CommandError):
    text = "ERR Command is not valid when client is a replica."


class WaitOnReplica(CommandError):
    text = (
        "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica"
        " is configured to be writable (which is not the default) writes to replicas are just local and are"
        " not propagated."
    )


class WritesLost(CommandError):
    text = (
        "ERR writes of this connection may be lost: this server has been a replica since then, and has loaded"
        " the data of its primary"
    )


class BadRdbOnly(CommandError):
    text = "ERR value is out of range, value must between 0 and 1"


class MissingFilter(CommandError):
    text = "ERR Missing rdb-filter-only values"


class BadFailoverTimeout(CommandError):
    text = "ERR FAILOVER timeout must be greater than 0"


class PsyncFailoverOnPrimary(CommandError):
    text = "ERR PSYNC FAILOVER can't be sent to a master."


class OtherReplicationId(CommandError):
    text = "ERR PSYNC FAILOVER replid must match my replid."


# The role.


def run_replicaof(call: Call) -> None:
    """REPLICAOF and SLAVEOF: follow a primary; NO ONE makes this server a primary."""
    host, port = call.argv[1], call.argv[2]
    replication = call.server.replication
    if is_keyword(host, b"NO") and is_keyword(port, b"ONE"):
        replication.promote()
        call.reply.ok()
        return
    if call.session.is_replica:
        raise CallerIsReplica()
    call.reply.simple(replication.follow(to_text(host), parse_port(port), call.session))


def parse_port(text: bytes) -> int:
    """Parse the port of a primary. Raises BadPort."""
    try:
        port = parse_i64(text)
    except NotAnInteger:
        raise BadPort() from None
    if not 0 <= port <= PORT_MAX:
        raise BadPort()
    return port


def run_role(call: Call) -> None:
    """ROLE: reply with the role, the offset, and the replicas or the primary."""
    call.reply.value(call.server.replication.role_reply())


def run_failover(call: Call) -> None:
    """FAILOVER: hand the role of primary to a replica, or abort a running failover."""
    arguments: Arguments = call.arguments()
    if arguments.remaining_count() == 1 and arguments.take_flag(b"ABORT"):
        call.server.replication.abort_failover()
        call.reply.ok()
        return
    host: str | None = None
    port = timeout = 0
    force = False
    while arguments.has_more():
        if timeout == 0 and arguments.take_option(b"TIMEOUT"):
            timeout = arguments.next_integer()
            if timeout <= 0:
                raise BadFailoverTimeout()
        elif host is None and arguments.remaining_count() > 2 and arguments.take_flag(b"TO"):
            host = to_text(arguments.next_argument())
            port = arguments.next_integer()
        elif not force and arguments.take_flag(b"FORCE"):
            force = True
        else:
            raise InvalidSyntax()
    call.server.replication.fail_over(host, port, force, timeout)
    call.reply.ok()


# A replica that is connected to this server.


def run_replconf(call: Call) -> None:
    """REPLCONF: store what a replica announces or acknowledges; ACK and GETACK have no reply."""
    words = call.argv[1:]
    dialect = ""
    if len(words) % 2:
        raise InvalidSyntax()
    for at in range(0, len(words), 2):
        option, value = words[at].lower(), words[at + 1]
        if option == b"ack":
            note_acknowledgement(call, words[at:])
            return
        if option == b"getack":
            return
        if option not in REPLCONF_OPTIONS:
            raise CommandError(f"ERR Unrecognized REPLCONF option: {to_text(words[at])}")
        check_replconf_value(option, value)
        call.server.replication.set_replconf_option(call.session, option, value)
        if option == b"capa":
            dialect = call.server.replication.replication_dialect(call.session)
    call.reply.simple(f"OK {dialect}".rstrip().encode())


def note_acknowledgement(call: Call, words: list[bytes]) -> None:
    """Store what a replica acknowledges, `ACK offset [FACK offset]`; ignore it if it is invalid."""
    synced = -1
    try:
        offset = parse_i64(words[1])
        if len(words) > 3 and is_keyword(words[2], b"FACK"):
            synced = parse_i64(words[3])
    except NotAnInteger:
        return
    if call.session.is_replica:
        call.server.replication.on_acknowledgement(call.session, offset, synced)
        call.keyspace.blocking.signal(0, ACKNOWLEDGEMENT_WAIT_KEY)


def check_replconf_value(option: bytes, value: bytes) -> None:
    """Raise CommandError if the value is invalid for that option of REPLCONF."""
    if option == b"listening-port":
        parse_i64(value)
    elif option == b"ip-address" and len(value) > ADDRESS_BYTES_MAX:
        text = "ERR REPLCONF ip-address provided by replica instance is too long"
        raise CommandError(f"{text}: {len(value)} bytes")
    elif option == b"ip-address" and not ADDRESS_PATTERN.fullmatch(value):
        raise CommandError("ERR REPLCONF ip-address is neither an address nor a host name")
    elif option in (b"rdb-only", b"headrace-translation") and not 0 <= parse_i64(value) <= 1:
        raise BadRdbOnly()
    elif option == b"rdb-filter-only":
        names = split_line(value)
        if names is None:
            raise MissingFilter()
        for name in names:
            if not is_keyword(name, b"FUNCTIONS"):
                raise CommandError(f"ERR Unsupported rdb-filter-only option: {to_text(name)}")


def run_psync(call: Call) -> None:
    """PSYNC: make the caller a replica; with FAILOVER, become a primary first."""
    argv = call.argv
    if call.session.is_replica:
        return
    if len(argv) > 3 and is_keyword(argv[3], b"FAILOVER"):
        promote_for_failover(call, argv[1])
    call.server.replication.synchronise(call.session, argv[1], parse_i64(argv[2]))


def promote_for_failover(call: Call, history: bytes) -> None:
    """Become a primary because this server's primary asks for it (FAILOVER). history: its replication ID.

    Raises PsyncFailoverOnPrimary or OtherReplicationId.
    """
    replication = call.server.replication
    if not replication.is_replica():
        raise PsyncFailoverOnPrimary()
    if dict(replication.info())["master_replid"] != to_text(history).lower():
        raise OtherReplicationId()
    replication.promote()


def run_sync(call: Call) -> None:
    """SYNC: make the caller a replica that knows no PSYNC."""
    if not call.session.is_replica:
        call.server.replication.synchronise(call.session, b"?", -1, legacy=True)


# Waiting for replicas.


def target_offset(call: Call) -> int:
    """Return the offset that replicas must reach to have the caller's writes; 0 if it has written nothing.

    Raises WritesLost, once, if a full synchronisation of this server has replaced such writes.
    """
    if call.session.writes_lost:
        call.session.writes_lost = False
        raise WritesLost()
    return 0 if call.session.last_write_offset < 0 else call.server.replication.written_offset()


def run_wait(call: Call) -> None:
    """WAIT: reply with the number of replicas that have the writes: when enough have, or at the deadline."""
    replication = call.server.replication
    if replication.is_replica():
        raise WaitOnReplica()
    replicas = parse_i64(call.argv[1])
    deadline = parse_deadline(call.argv[2], call.now)
    call.session.awaited_offset = target_offset(call)
    serve = serve_when_acknowledged(replicas)
    if not call.policy.may_block:
        write_wait_reply(call)
    elif not serve(call):
        replication.request_acknowledgements()
        call.database = call.keyspace.databases[0]
        call.wait([ACKNOWLEDGEMENT_WAIT_KEY], deadline, serve, "acknowledged")


def serve_when_acknowledged(replicas: int) -> Callable[[Call], bool]:
    """Return the `serve` function that replies as soon as that many replicas have the caller's writes."""

    def serve(call: Call) -> bool:
        if call.server.replication.count_acknowledged_replicas(call.session.awaited_offset) < replicas:
            return False
        if replicas > 0:
            call.session.confirmed_offset = call.session.last_write_offset
        write_wait_reply(call)
        return True

    return serve


REPLICAOF_FLAGS = "admin noscript stale no_async_loading"
SYNC_FLAGS = "admin noscript no_async_loading no_multi"

COMMANDS = [
    server_command(
        "replicaof", 3, run_replicaof, "5.0.0", "Follows a primary.", "<host port | NO ONE>", REPLICAOF_FLAGS
    ),
    server_command(
        "slaveof",
        3,
        run_replicaof,
        "1.0.0",
        "The old name of REPLICAOF.",
        "<host port | NO ONE>",
        REPLICAOF_FLAGS,
    ),
    server_command(
        "failover",
        -1,
        run_failover,
        "6.2.0",
        "Hands the role of primary to a replica.",
        "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
        "admin noscript stale",
    ),
    server_command(
        "replconf",
        -1,
        run_replconf,
        "3.0.0",
        "Sent by replicas: what they are and have.",
        "[option value ...]",
        "admin noscript loading stale allow_busy",
    ),
    server_command(
        "psync",
        -3,
        run_psync,
        "2.8.0",
        "Sent by replicas: continues the stream of effects.",
        "replicationid offset",
        SYNC_FLAGS,
    ),
    server_command(
        "sync", 1, run_sync, "1.0.0", "Sent by replicas: sends all data, then effects.", "", SYNC_FLAGS
    ),
    Command(
        "wait",
        3,
        run_wait,
        "blocking",
        tips="request_policy:all_shards response_policy:agg_min",
        group="generic",
        since="3.0.0",
        summary="Waits until replicas have the caller's writes.",
        syntax="numreplicas timeout",
        categories="connection -keyspace",
    ),
    Command(
        "role",
        1,
        run_role,
        "noscript loading stale fast",
        group="server",
        since="2.8.12",
        summary="Returns the server's role in replication.",
        categories="admin dangerous",
    ),
]
