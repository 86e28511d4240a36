"""Subscriptions to channels and patterns, monitors, and the delivery of messages.

    names:     channel -> sessions        a message to the channel goes to each of them
    patterns:  glob -> sessions           and to each whose glob matches the channel, once for each glob
    monitors:  sessions                   a line for every request of any client goes to each

A message waits in the outbox until the request that caused it has its reply. So a client receives messages
after its own reply, and never inside of it.
"""

from __future__ import annotations

import cython

from headrace.commands.session import Session
from headrace.keyspace.events import Events
from headrace.keyspace.glob import Glob
from headrace.resp.writer import ReplyWriter


@cython.final
@cython.cclass
class PubSub:
    """All subscriptions of one engine. While there are none, no keyspace events are formatted."""

    names: dict[bytes, dict[Session, None]]
    patterns: dict[bytes, dict[Session, None]]
    globs: dict[bytes, Glob]  # compiled, for the same patterns
    monitors: dict[Session, None]
    outbox: list[tuple[Session, bytes | None, bytes | None, bytes]]  # recipient, pattern, channel, message
    events: Events

    def __init__(self, events: Events) -> None:
        self.events = events
        self.names = {}
        self.patterns = {}
        self.globs = {}
        self.monitors = {}
        self.outbox = []

    @cython.ccall
    def subscribe(self, session: Session, name: bytes) -> cython.void:
        """Subscribe the session to the channel."""
        self.names.setdefault(name, {})[session] = None
        session.channels[name] = None
        self._count(session)

    @cython.ccall
    def subscribe_pattern(self, session: Session, glob: bytes) -> cython.void:
        """Subscribe the session to all channels that match the glob."""
        if glob not in self.globs:
            self.globs[glob] = Glob(glob)
        self.patterns.setdefault(glob, {})[session] = None
        session.patterns[glob] = None
        self._count(session)

    @cython.ccall
    def unsubscribe(self, session: Session, name: bytes) -> cython.void:
        """Unsubscribe the session from the channel."""
        if name in session.channels:
            del session.channels[name]
            remove_listener(self.names, name, session)
            self._count(session)

    @cython.ccall
    def unsubscribe_pattern(self, session: Session, glob: bytes) -> cython.void:
        """Unsubscribe the session from the pattern."""
        if glob in session.patterns:
            del session.patterns[glob]
            remove_listener(self.patterns, glob, session)
            if glob not in self.patterns:
                del self.globs[glob]
            self._count(session)

    @cython.ccall
    def unsubscribe_all(self, session: Session) -> cython.void:
        """Remove all subscriptions of the session, and its MONITOR."""
        for name in list(session.channels):
            self.unsubscribe(session, name)
        for glob in list(session.patterns):
            self.unsubscribe_pattern(session, glob)
        if session.monitoring:
            session.monitoring = False
            del self.monitors[session]

    @cython.ccall
    def monitor(self, session: Session) -> cython.void:
        """Send all further requests to the session, as MONITOR does."""
        session.monitoring = True
        self.monitors[session] = None

    @cython.ccall
    def send_to_monitors(self, line: bytes) -> cython.void:
        """Send the line to all monitors."""
        session: Session
        for session in self.monitors:
            self.outbox.append((session, None, None, line))

    @cython.ccall
    def publish(self, channel: bytes, message: bytes) -> cython.longlong:
        """Send the message to the channel; return how many subscriptions it reaches."""
        before: cython.longlong = len(self.outbox)
        session: Session
        for session in self.names.get(channel, ()):
            self.outbox.append((session, None, channel, message))
        matcher: Glob
        for glob, matcher in self.globs.items():
            if matcher.matches(channel):
                for session in self.patterns[glob]:
                    self.outbox.append((session, glob, channel, message))
        return len(self.outbox) - before

    @cython.ccall
    def deliver(self, woken: list[Session]) -> cython.void:
        """Write the messages of the outbox to the recipients' replies; append those sessions to `woken`."""
        session: Session
        glob: bytes | None
        batch = self.outbox
        self.outbox = []
        for session, glob, channel, message in batch:
            if session.closing:
                continue
            reply: ReplyWriter = session.reply
            if channel is None:
                reply.simple(message)
            elif glob is None:
                reply.push(3)
                reply.bulk(b"message")
            else:
                reply.push(4)
                reply.bulk(b"pmessage")
                reply.bulk(glob)
            if channel is not None:
                reply.bulk(channel)
                reply.bulk(message)
            if not woken or woken[-1] is not session:
                woken.append(session)

    @cython.cfunc
    def _count(self, session: Session) -> cython.void:
        """Update the session's number of subscriptions; enable or disable keyspace events."""
        session.subscription_count = len(session.channels) + len(session.patterns)
        self.events.publish = self.publish if self.names or self.patterns else None


def remove_listener(listeners: dict[bytes, dict[Session, None]], name: bytes, session: Session) -> None:
    """Remove the session from the listeners of that name."""
    others = listeners[name]
    del others[session]
    if not others:
        del listeners[name]
