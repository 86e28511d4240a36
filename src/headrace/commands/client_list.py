"""How CLIENT LIST and CLIENT INFO describe a session, one line of name=value each."""

from __future__ import annotations

from headrace.commands.session import Session

# Counted for a session that has neither transport nor buffers of its own.
NO_BUFFERS = (0, 0)


def line(session: Session, now: int, buffers: tuple[int, int] = NO_BUFFERS) -> bytes:
    """The session at now (milliseconds); buffers: bytes in its query buffer, and free there."""
    held, free = buffers
    queued = session.queue
    watch = session.watch
    command = session.last_command
    cap = session.answer.cap
    fields = (
        (b"id", session.id),
        (b"addr", session.address),
        (b"laddr", session.local_address),
        (b"fd", session.file_number),
        (b"name", session.name),
        (b"age", max(0, now - session.created_ms) // 1000),
        (b"idle", max(0, now - session.active_ms) // 1000),
        (b"flags", flags(session)),
        (b"db", session.database),
        (b"sub", len(session.channels)),
        (b"psub", len(session.patterns)),
        (b"ssub", 0),
        (b"multi", -1 if queued is None else len(queued)),
        (b"watch", 0 if watch is None else len(watch.keys)),
        (b"qbuf", held),
        (b"qbuf-free", free),
        (b"argv-mem", 0),
        (b"multi-mem", session.queued_bytes()),
        (b"rbs", cap),
        (b"rbp", session.answer.pending()),
        (b"obl", session.answer.pending()),
        (b"oll", 0),
        (b"omem", 0),
        (b"tot-mem", held + free + cap + session.queued_bytes()),
        (b"events", b"r"),
        (b"cmd", b"NULL" if command is None else command.name),
        (b"user", session.user),
        (b"redir", -1),
        (b"resp", session.answer.protocol),
        (b"lib-name", session.library_name),
        (b"lib-ver", session.library_version),
    )
    return b" ".join(name + b"=" + (b"%d" % v if isinstance(v, int) else v) for name, v in fields)


def flags(session: Session) -> bytes:
    """What the session is up to, a letter each, as Redis has them; N for nothing."""
    watch = session.watch
    marks = (
        (b"O", session.monitoring),
        (b"P", session.subscribed > 0),
        (b"x", session.queue is not None),
        (b"b", session.waiting is not None),
        (b"d", watch is not None and watch.spoilt),
        (b"c", session.closing),
        (b"e", session.no_evict),
        (b"T", session.no_touch),
    )
    return b"".join(letter for letter, holds in marks if holds) or b"N"
