"""SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF and WAITAOF: persistence. The server interface does the work.

written      session.last_write_offset: the log's length when the session last changed data, before the change
synced       the synced length of the log

log  |----------------|=======|-------|
                  written   synced      the session's writes are synced as soon as synced > written
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.commands.arguments import Arguments, parse_i64
from headrace.commands.call import Call, write_waitaof_reply
from headrace.commands.connection.client import parse_deadline
from headrace.commands.server.replication import ACKNOWLEDGEMENT_WAIT_KEY, target_offset
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax, NotAnInteger

# Not a key, but used as one: clients that wait for a sync wait for it, in database 0. A real key of that
# name does no harm: the waiters are retried in vain.
SYNC_WAIT_KEY = b"\0synced"


class SaveRunning(CommandError):
    text = "ERR Background save already in progress"


class RewriteRunning(CommandError):
    text = "ERR Background append only file rewriting already in progress"


class OtherChildRunning(CommandError):
    text = (
        "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to"
        " schedule a BGSAVE whenever possible."
    )


class BadLocalCount(CommandError):
    text = "ERR value is out of range, value must between 0 and 1"


class BadReplicaCount(CommandError):
    text = "ERR value is out of range, must be positive"


class WaitAofOnReplica(CommandError):
    text = (
        "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just"
        " local and are not propagated."
    )


class WaitAofWithoutLog(CommandError):
    text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."


def run_save(call: Call) -> None:
    """SAVE: write a snapshot; all other clients wait."""
    call.server.save(call.now)
    call.reply.ok()


def run_bgsave(call: Call) -> None:
    """BGSAVE: write a snapshot of this moment between requests."""
    arguments: Arguments = call.arguments()
    schedule = arguments.take_flag(b"SCHEDULE")
    if arguments.has_more():
        raise InvalidSyntax()
    call.reply.simple(call.server.background_save(schedule))


def run_lastsave(call: Call) -> None:
    """LASTSAVE: reply with the time of the last snapshot, in seconds since 1970."""
    call.reply.integer(call.server.last_save_s())


def run_bgrewriteaof(call: Call) -> None:
    """BGREWRITEAOF: rewrite the log from the present data, between requests."""
    call.reply.simple(call.server.rewrite_log())


def parse_replica_count(text: bytes) -> int:
    """Parse the number of replicas to wait for. Raises BadReplicaCount."""
    try:
        replicas = parse_i64(text)
    except NotAnInteger:
        raise BadReplicaCount() from None
    if replicas < 0:
        raise BadReplicaCount()
    return replicas


def run_waitaof(call: Call) -> None:
    """WAITAOF: wait until the caller's writes are synced here (numlocal 1) and on a number of replicas."""
    local = parse_i64(call.argv[1])
    if not 0 <= local <= 1:
        raise BadLocalCount()
    replicas = parse_replica_count(call.argv[2])
    deadline = parse_deadline(call.argv[3], call.now)
    if call.server.replication.is_replica():
        raise WaitAofOnReplica()
    call.session.awaited_offset = target_offset(call)
    serve = serve_when_synced(local, replicas)
    if not call.policy.may_block:
        check_log_exists(call, local)
        write_waitaof_reply(call)
    elif not serve(call):
        keys = [SYNC_WAIT_KEY] if local else []
        if replicas:
            keys.append(ACKNOWLEDGEMENT_WAIT_KEY)
            call.server.replication.request_acknowledgements()
        call.database = call.keyspace.databases[0]
        call.wait(keys, deadline, serve, "synced")


def check_log_exists(call: Call, local: int) -> None:
    """Raise WaitAofWithoutLog if the caller waits for a sync and there is no log."""
    if local and call.server.synced_log_offset() < 0:
        raise WaitAofWithoutLog()


def serve_when_synced(local: int, replicas: int) -> Callable[[Call], bool]:
    """Return the `serve` function that replies as soon as the caller's writes are synced.

    Args:
        local: 1 if the writes must be synced on this server, else 0.
        replicas: on how many replicas they must be synced.
    """

    def serve(call: Call) -> bool:
        check_log_exists(call, local)
        if local and call.server.synced_log_offset() <= call.session.last_write_offset:
            return False
        if call.server.replication.count_synced_replicas(call.session.awaited_offset) < replicas:
            return False
        if replicas > 0:
            call.session.confirmed_offset = call.session.last_write_offset
        write_waitaof_reply(call)
        return True

    return serve


ADMIN_FLAGS = "admin noscript no_async_loading"

COMMANDS = [
    Command(
        "save",
        1,
        run_save,
        ADMIN_FLAGS + " no_multi",
        group="server",
        summary="Writes a snapshot; all other clients wait.",
        complexity="O(N), N being the bytes of all values",
    ),
    Command(
        "bgsave",
        -1,
        run_bgsave,
        ADMIN_FLAGS,
        group="server",
        summary="Writes a snapshot in the background.",
        syntax="[SCHEDULE]",
        complexity="O(1), and O(N) in the background",
    ),
    Command(
        "lastsave",
        1,
        run_lastsave,
        "loading stale fast",
        tips="nondeterministic_output",
        group="server",
        summary="Returns when the last snapshot was taken, in seconds since 1970.",
        categories="admin dangerous",
    ),
    Command(
        "bgrewriteaof",
        1,
        run_bgrewriteaof,
        ADMIN_FLAGS,
        group="server",
        summary="Rewrites the log in the background, from the present data.",
        complexity="O(1), and O(N) in the background",
    ),
    Command(
        "waitaof",
        4,
        run_waitaof,
        "blocking",
        tips="request_policy:all_shards response_policy:agg_min",
        group="generic",
        since="7.2.0",
        summary="Waits until the caller's writes are synced to the log, here and on replicas.",
        syntax="numlocal numreplicas timeout",
        categories="connection -keyspace",
    ),
]
