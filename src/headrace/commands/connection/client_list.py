"""The lines of CLIENT LIST and CLIENT INFO: one for each session, of name=value pairs."""

from __future__ import annotations

import cython

from headrace.commands.session import Session

# For a session without a connection.
NO_BUFFERS = (0, 0)
LINE = (
    b"id=%d addr=%b laddr=%b fd=%d name=%b age=%d idle=%d flags=%b db=%d sub=%d psub=%d ssub=0 multi=%d"
    b" watch=%d qbuf=%d qbuf-free=%d argv-mem=0 multi-mem=%d rbs=%d rbp=%d obl=%d oll=0 omem=0 tot-mem=%d"
    b" events=r cmd=%b user=%b redir=-1 resp=%d lib-name=%b lib-ver=%b"
)


def line(session: Session, now: int, buffers: tuple[int, int] = NO_BUFFERS) -> bytes:
    """Return the session's line. buffers: bytes in its read buffer, and bytes free there."""
    held, free = buffers
    queue, watch, command = session.queue, session.watch, session.last_command
    cap, unsent = session.reply.cap, session.reply.pending()
    queued = session.multi_queue_bytes()
    return LINE % (
        session.id,
        session.address,
        session.local_address,
        session.file_number,
        session.name,
        max(0, now - session.created_ms) // 1000,
        max(0, now - session.active_ms) // 1000,
        flags(session),
        session.database,
        len(session.channels),
        len(session.patterns),
        -1 if queue is None else len(queue),
        0 if watch is None else len(watch.keys),
        held,
        free,
        queued,
        cap,
        unsent,
        unsent,
        held + free + cap + queued,
        b"NULL" if command is None else command.name,
        session.user,
        session.reply.protocol,
        session.library_name,
        session.library_version,
    )


def flags(session: Session) -> bytes:
    """Return the session's flags as Redis's letters; N for none."""
    watch = session.watch
    marks = (
        (b"O", session.monitoring),
        (b"P", session.subscription_count > 0),
        (b"x", session.queue is not None),
        (b"b", session.waiting is not None),
        (b"d", watch is not None and watch.invalidated),
        (b"c", session.closing),
        (b"e", session.no_evict),
        (b"T", session.no_touch),
    )
    return b"".join(letter for letter, is_set in marks if is_set) or b"N"
