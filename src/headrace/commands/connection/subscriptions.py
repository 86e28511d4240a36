"""Subscriptions to channels and patterns, monitors, and the delivery of messages.

    channel_subscribers:        channel -> sessions   a message to the channel goes to each of them
    pattern_subscribers:        glob -> sessions      and to each whose glob matches it, once for each glob
    shard_channel_subscribers:  channel -> sessions   a shard channel is not the channel of that name
    monitors:                   sessions              a line for every request of any client goes to each

A message waits in the outbox until the request that caused it has its reply. So a client receives messages
after its own reply, and never inside of it. Invalidations of cached keys (tracking_table.py) wait there, too.
If a script causes many, those for other clients are delivered while it runs, so that memory stays bounded.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import limits
from headrace.commands.connection.tracking_table import Tracking
from headrace.commands.session import Session
from headrace.keyspace.events import KeyspaceNotifier
from headrace.keyspace.glob import Glob
from headrace.keyspace.keyspace import Keyspace
from headrace.resp.writer import ReplyWriter
from headrace.visibility import Public

OUTBOX_MESSAGES_MAX = cython.declare(cython.Py_ssize_t, limits.SCRIPT_MESSAGES_MAX)
OUTBOX_BYTES_MAX = cython.declare(cython.Py_ssize_t, limits.SCRIPT_MESSAGE_BYTES_MAX)
MESSAGE_OVERHEAD_BYTES = cython.declare(
    cython.Py_ssize_t, 150
)  # about what a message takes besides its words
# Two dictionary entries, their bytes object and, for a pattern, its Glob take so much besides the name.
SUBSCRIPTION_OVERHEAD_BYTES = cython.declare(cython.Py_ssize_t, 350)
PATTERN_STEPS_MAX = cython.declare(cython.longlong, limits.PATTERN_STEPS_MAX)


@cython.final
@cython.cclass
class PubSub:
    """All subscriptions of one engine. While there are none, no keyspace events are formatted."""

    channel_subscribers: dict[bytes, dict[Session, None]]
    pattern_subscribers: dict[bytes, dict[Session, None]]
    globs: dict[bytes, Glob]  # compiled, for the same patterns
    shard_channel_subscribers: dict[bytes, dict[Session, None]]
    monitors: dict[Session, None]
    # (recipient, words of a message; a single word is a MONITOR line), or (None, a change noted by Tracking)
    outbox: list[tuple[Any, Any]]
    outbox_messages_max: cython.Py_ssize_t  # in the outbox; then what can be delivered is
    outbox_bytes_max: cython.Py_ssize_t
    # A recipient with more unread bytes is disconnected; 0: no limit.
    unread_bytes_max: Public[cython.Py_ssize_t]
    notifier: KeyspaceNotifier
    tracking: Tracking
    _outbox_bytes: cython.Py_ssize_t  # of published messages in the outbox

    def __init__(self, keyspace: Keyspace, clients: dict[int, Session]) -> None:
        self.notifier = keyspace.notifier
        self.channel_subscribers = {}
        self.pattern_subscribers = {}
        self.globs = {}
        self.shard_channel_subscribers = {}
        self.monitors = {}
        self.outbox = []
        self.outbox_messages_max, self.outbox_bytes_max, self._outbox_bytes = (
            OUTBOX_MESSAGES_MAX,
            OUTBOX_BYTES_MAX,
            0,
        )
        self.unread_bytes_max = 0
        self.tracking = Tracking(keyspace, clients, self.outbox)

    @cython.ccall
    def subscribe(self, session: Session, name: bytes) -> cython.void:
        """Subscribe the session to the channel."""
        self.channel_subscribers.setdefault(name, {})[session] = None
        if name not in session.channels:
            session.channels[name] = None
            self._update_counts(session, SUBSCRIPTION_OVERHEAD_BYTES + len(name))

    @cython.ccall
    def subscribe_pattern(self, session: Session, glob: bytes) -> cython.void:
        """Subscribe the session to all channels that match the glob."""
        if glob not in self.globs:
            self.globs[glob] = Glob(glob)
        self.pattern_subscribers.setdefault(glob, {})[session] = None
        if glob not in session.patterns:
            session.patterns[glob] = None
            self._update_counts(session, SUBSCRIPTION_OVERHEAD_BYTES + len(glob))

    @cython.ccall
    def unsubscribe(self, session: Session, name: bytes) -> cython.void:
        """Unsubscribe the session from the channel."""
        if name in session.channels:
            del session.channels[name]
            remove_listener(self.channel_subscribers, name, session)
            self._update_counts(session, -SUBSCRIPTION_OVERHEAD_BYTES - len(name))

    @cython.ccall
    def unsubscribe_pattern(self, session: Session, glob: bytes) -> cython.void:
        """Unsubscribe the session from the pattern."""
        if glob in session.patterns:
            del session.patterns[glob]
            remove_listener(self.pattern_subscribers, glob, session)
            if glob not in self.pattern_subscribers:
                del self.globs[glob]
            self._update_counts(session, -SUBSCRIPTION_OVERHEAD_BYTES - len(glob))

    @cython.ccall
    def subscribe_shard(self, session: Session, name: bytes) -> cython.void:
        """Subscribe the session to the shard channel."""
        self.shard_channel_subscribers.setdefault(name, {})[session] = None
        if name not in session.shard_channels:
            session.shard_channels[name] = None
            self._update_counts(session, SUBSCRIPTION_OVERHEAD_BYTES + len(name))

    @cython.ccall
    def unsubscribe_shard(self, session: Session, name: bytes) -> cython.void:
        """Unsubscribe the session from the shard channel."""
        if name in session.shard_channels:
            del session.shard_channels[name]
            remove_listener(self.shard_channel_subscribers, name, session)
            self._update_counts(session, -SUBSCRIPTION_OVERHEAD_BYTES - len(name))

    @cython.ccall
    def unsubscribe_all(self, session: Session) -> cython.void:
        """Remove all subscriptions of the session, and its MONITOR."""
        for name in list(session.channels):
            self.unsubscribe(session, name)
        for glob in list(session.patterns):
            self.unsubscribe_pattern(session, glob)
        for name in list(session.shard_channels):
            self.unsubscribe_shard(session, name)
        if session.monitoring:
            session.monitoring = False
            del self.monitors[session]

    @cython.ccall
    def add_monitor(self, session: Session) -> cython.void:
        """Send all further requests to the session, as MONITOR does."""
        session.monitoring = True
        self.monitors[session] = None

    @cython.ccall
    def send_to_monitors(self, line: bytes) -> cython.void:
        """Send the line to all monitors."""
        session: Session
        self._outbox_bytes += len(self.monitors) * (MESSAGE_OVERHEAD_BYTES + len(line))
        for session in self.monitors:
            self.outbox.append((session, (line,)))

    @cython.ccall
    def takes_too_long_to_match(self, channel: bytes) -> cython.bint:
        """Return whether comparing the channel with all patterns would take too long."""
        steps: cython.longlong = len(channel)
        return steps * len(self.globs) > PATTERN_STEPS_MAX

    @cython.ccall
    def publish(self, channel: bytes, message: bytes) -> cython.longlong:
        """Send the message to the channel; return how many subscriptions it reaches."""
        before: cython.longlong = len(self.outbox)
        session: Session
        words: Any  # the same tuple for all recipients
        found = self.channel_subscribers.get(channel)
        if found is not None:
            words = (b"message", channel, message)
            for session in found:
                self.outbox.append((session, words))
        matcher: Glob
        for glob, matcher in self.globs.items():
            if matcher.matches(channel):
                words = (b"pmessage", glob, channel, message)
                for session in self.pattern_subscribers[glob]:
                    self.outbox.append((session, words))
        count: cython.longlong = len(self.outbox) - before
        self._outbox_bytes += count * (MESSAGE_OVERHEAD_BYTES + len(channel) + len(message))
        return count

    @cython.ccall
    def publish_to_shard(self, channel: bytes, message: bytes) -> cython.longlong:
        """Send the message to the shard channel; return how many clients it reaches."""
        session: Session
        found = self.shard_channel_subscribers.get(channel)
        if found is None:
            return 0
        self._outbox_bytes += len(found) * (MESSAGE_OVERHEAD_BYTES + len(channel) + len(message))
        for session in found:
            self.outbox.append((session, (b"smessage", channel, message)))
        return len(found)

    @cython.ccall
    def deliver(self, woken: list[Session], current: Session | None) -> cython.void:
        """Write the messages of the outbox to the reply buffers of their recipients.

        Args:
            woken: the sessions that received something are appended.
            current: the client whose request caused the messages; None if no request did. Its cached keys are
                invalidated after all other messages.
        """
        session: Session | None
        own: list[Any] = []
        batch = self.outbox.copy()
        self.outbox.clear()
        self.outbox_messages_max, self.outbox_bytes_max, self._outbox_bytes = (
            OUTBOX_MESSAGES_MAX,
            OUTBOX_BYTES_MAX,
            0,
        )
        for session, words in batch:
            if session is None:
                if current is not None and current.tracking is not None and words[0] is current.tracking:
                    own.append(words)
                else:
                    self.tracking.deliver(words, current, woken)
            elif not session.closing:
                self._write(session.reply, words)
                if not woken or woken[-1] is not session:
                    woken.append(session)
        for words in own:
            self.tracking.deliver(words, current, woken)

    @cython.ccall
    def is_outbox_full(self) -> cython.bint:
        """Return whether the outbox has so many messages that a script must call deliver_to_others()."""
        return len(self.outbox) >= self.outbox_messages_max or self._outbox_bytes >= self.outbox_bytes_max

    @cython.ccall
    def deliver_to_others(self, woken: list[Session], current: Session) -> cython.void:
        """Deliver the messages that a running script caused, except those for the script's own client.

        These stay in the outbox. If they exceed the client's limit of unread bytes, they are dropped and
        the client is disconnected.
        """
        own: list[Any] = []
        others: list[Any] = []
        own_bytes: cython.Py_ssize_t = 0
        for item in self.outbox:
            session, words = item
            if session is current or (session is None and self.tracking.is_sent_to(words[0], current)):
                own.append(item)
                own_bytes += MESSAGE_OVERHEAD_BYTES
                for word in words:
                    own_bytes += len(word) if isinstance(word, bytes) else 0
            else:
                others.append(item)
        self.outbox[:] = others
        self.deliver(woken, current)
        if 0 < self.unread_bytes_max < own_bytes:
            self._drop_replies(current.reply)
            return
        self.outbox.extend(own)
        # Twice as many before the next time, so that they are not looked at too often.
        self.outbox_messages_max = OUTBOX_MESSAGES_MAX + 2 * len(own)
        self.outbox_bytes_max = OUTBOX_BYTES_MAX + 2 * own_bytes
        self._outbox_bytes = own_bytes

    @cython.cfunc
    def _write(self, reply: ReplyWriter, words: Any) -> cython.void:
        if 0 < self.unread_bytes_max < reply.pending_bytes():
            self._drop_replies(reply)
        if len(words) == 1:
            reply.simple(words[0])
            return
        reply.push(len(words))
        for word in words:
            reply.bulk(word)

    @cython.cfunc
    def _drop_replies(self, reply: ReplyWriter) -> cython.void:
        """Drop all that a client has not read; the event loop then disconnects it."""
        reply.limit = self.unread_bytes_max  # for the line in the log
        reply.drop_unsent()

    @cython.cfunc
    def _update_counts(self, session: Session, added_bytes: cython.Py_ssize_t) -> cython.void:
        """Update the session's number of subscriptions and their memory; switch keyspace events on or off."""
        session.subscription_bytes += added_bytes
        session.subscription_count = (
            len(session.channels) + len(session.patterns) + len(session.shard_channels)
        )
        self.notifier.publish = self.publish if self.channel_subscribers or self.pattern_subscribers else None


def remove_listener(listeners: dict[bytes, dict[Session, None]], name: bytes, session: Session) -> None:
    """Remove the session from the listeners of that name."""
    others = listeners[name]
    del others[session]
    if not others:
        del listeners[name]
