"""SAVE BGSAVE LASTSAVE BGREWRITEAOF WAITAOF: what is on disk, or will be soon. The host does the work.

written      how long the log was when a session last changed something; its change stands behind that
synced       how much of the log the disk has: the length after some commit

log  |----------------|=======|-------|
                  written   synced      a session that wrote there is safe as soon as synced > written
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.commands.arguments import Arguments, parse_i64
from headrace.commands.call import Call, answer_synced
from headrace.commands.connection.client import parse_deadline
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax, NotAnInteger

# Not a key, but it stands where keys stand: who waits for a sync waits for it, in database 0. A key of the
# same name does no harm: those who wait are tried in vain.
SYNCED = b"\0synced"


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


class NoLog(CommandError):
    text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."


def run_save(call: Call) -> None:
    """Write a snapshot, while all others wait."""
    call.server.save(call.now)
    call.answer.ok()


def run_bgsave(call: Call) -> None:
    """Write a snapshot of this moment in a process of its own."""
    arguments: Arguments = call.arguments()
    schedule = arguments.take_flag(b"SCHEDULE")
    if arguments.has_more():
        raise InvalidSyntax()
    call.answer.simple(call.server.background_save(schedule))


def run_lastsave(call: Call) -> None:
    """When the last snapshot was taken."""
    call.answer.integer(call.server.last_save_s())


def run_bgrewriteaof(call: Call) -> None:
    """Write the log anew from what there is, in a process of its own."""
    call.answer.simple(call.server.rewrite_log())


def replica_count(text: bytes) -> int:
    """For how many replicas to wait."""
    try:
        replicas = parse_i64(text)
    except NotAnInteger:
        raise BadReplicaCount() from None
    if replicas < 0:
        raise BadReplicaCount()
    return replicas


def run_waitaof(call: Call) -> None:
    """Wait until the caller's writes are synced here, if so asked. A wait for replicas is vain."""
    local = parse_i64(call.argv[1])
    if not 0 <= local <= 1:
        raise BadLocalCount()
    replicas = replica_count(call.argv[2])
    deadline = parse_deadline(call.argv[3], call.now)
    serve = waiter_for(local, replicas)
    if not call.may_block:
        check_log_exists(call, local)
        answer_synced(call)
    elif not serve(call):
        call.database = call.keyspace.databases[0]
        call.wait([SYNCED], deadline, serve, "synced")


def check_log_exists(call: Call, local: int) -> None:
    """Nothing is ever synced without a log."""
    if local and call.server.log_synced() < 0:
        raise NoLog()


def waiter_for(local: int, replicas: int) -> Callable[[Call], bool]:
    """What answers as soon as the caller's writes are so safe."""

    def serve(call: Call) -> bool:
        check_log_exists(call, local)
        if replicas or (local and call.server.log_synced() <= call.session.last_write_offset):
            return False
        answer_synced(call)
        return True

    return serve


ADMIN = "admin noscript no_async_loading"

COMMANDS = [
    Command(
        "save",
        1,
        run_save,
        ADMIN + " no_multi",
        group="server",
        summary="Writes a snapshot; nobody is served meanwhile.",
        complexity="O(N), N being the bytes of all values",
    ),
    Command(
        "bgsave",
        -1,
        run_bgsave,
        ADMIN,
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
        group="server",
        summary="Returns when the last snapshot was taken, in seconds since 1970.",
        categories="admin dangerous",
    ),
    Command(
        "bgrewriteaof",
        1,
        run_bgrewriteaof,
        ADMIN,
        group="server",
        summary="Writes the log anew in the background: what is there now, no longer how it came to be.",
        complexity="O(1), and O(N) in the background",
    ),
    Command(
        "waitaof",
        4,
        run_waitaof,
        "blocking",
        group="generic",
        since="7.2.0",
        summary="Waits until the caller's writes are synced to the log, here and on replicas.",
        syntax="numlocal numreplicas timeout",
        categories="connection",
    ),
]
