"""Log that a group has lost entries: they were removed before it had read or processed them.

The log names a group at most once in LOG_INTERVAL_MS; Keyspace.loss_log_limiter limits the lines of all
groups. A line counts all losses since the group's previous one.
"""

from __future__ import annotations

import logging

from headrace.commands.call import Call
from headrace.errors import log_text
from headrace.streams.group import Group
from headrace.streams.stream import Stream

LOG_INTERVAL_MS = 60_000


def mark_as_logged(stream: Stream, group: Group) -> None:
    """Treat the losses of the group so far as logged."""
    group.logged_lost_unread_count, group.logged_lost_pending_count = (
        stream.lost_unread_count(group),
        group.lost_pending_count,
    )


def log_new_losses(call: Call, key: bytes, stream: Stream, group: Group) -> None:
    """Log what the group has lost since its previous line, if it may be logged now."""
    if call.replayed():
        return
    if group.losses_logged_ms >= 0 and 0 <= call.now - group.losses_logged_ms < LOG_INTERVAL_MS:
        group.has_unlogged_losses = True
        return
    group.has_unlogged_losses = False
    total_unread, total_pending = stream.lost_unread_count(group), group.lost_pending_count
    unread, pending = (
        total_unread - group.logged_lost_unread_count,
        total_pending - group.logged_lost_pending_count,
    )
    if unread <= 0 and pending <= 0:
        return
    if not call.keyspace.loss_log_limiter.try_acquire(call.now):
        group.has_unlogged_losses = True
        return
    group.losses_logged_ms = call.now
    mark_as_logged(stream, group)
    logging.getLogger("headrace").warning(
        "group %s of stream %s has lost entries, which were removed too early:"
        " %d before it read them, %d pending (in total %d and %d)",
        log_text(group.name),
        log_text(key),
        max(unread, 0),
        max(pending, 0),
        total_unread,
        total_pending,
    )
