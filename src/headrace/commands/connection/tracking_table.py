"""The keys that clients cache (CLIENT TRACKING), and the messages that invalidate them.

    readers:    key -> clients that read it  a change of the key informs each of them and removes the key
    broadcasts: prefix -> BroadcastPrefix    BCAST: the keys changed in this turn, sent together at its end

A change is put into the outbox of PubSub, so that a client is informed after the reply to its own request,
and never inside of it. While no client has tracking enabled, changes of keys are not passed to this module.

The table is bounded: by tracking-table-max-keys and by the bytes of the keys. A key has at most about twice
as many readers as there are clients with tracking. Readers of a key that is removed to keep these bounds are
informed that it is invalid.
Keys of all databases with the same name are one key, as in Redis.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import cython

from headrace import limits
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.commands.tracking_state import TrackingState
from headrace.errors import CommandError
from headrace.keyspace.keyspace import Database, Keyspace
from headrace.resp.writer import ReplyWriter
from headrace.visibility import Public

INVALIDATION_CHANNEL = b"__redis__:invalidate"  # of redirected messages in RESP2
# More keys than those just added are forgotten at once only up to this number: each is a message.
FORGOTTEN_AT_ONCE_MAX = cython.declare(cython.Py_ssize_t, 1000)
STALE_READERS_MIN = cython.declare(cython.Py_ssize_t, 8)  # fewer are not worth a search for those that left


@cython.final
@cython.cclass
class BroadcastPrefix:
    """The clients that are informed of every key with one prefix."""

    prefix: bytes
    states: dict[TrackingState, None]
    # changed keys -> the ID of the client that changed it last; 0: the server did
    changed_by: dict[bytes, int]

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.states = {}
        self.changed_by = {}


@cython.final
@cython.cclass
class Tracking:
    """The keys that the clients of one engine cache, and the clients to inform when these change."""

    keyspace: Keyspace
    clients: dict[int, Session]  # all sessions of the engine, by id
    outbox: list[tuple[Any, Any]]  # of PubSub: see there
    active_states: dict[TrackingState, None]  # tracking is on
    states: dict[TrackingState, None]  # of all clients that have used tracking and are connected
    readers: OrderedDict[bytes, Any]  # key -> a TrackingState or a dictionary of several; oldest first
    item_count: cython.longlong  # pairs of key and client
    key_bytes: cython.longlong
    key_bytes_max: Public[cython.longlong]
    broadcasts: dict[bytes, BroadcastPrefix]  # by prefix
    prefix_lengths: dict[int, int]  # length -> how many prefixes have it
    broadcast_due: cython.bint  # keys have changed for which broadcast() must be called in this turn

    def __init__(
        self, keyspace: Keyspace, clients: dict[int, Session], outbox: list[tuple[Any, Any]]
    ) -> None:
        self.keyspace = keyspace
        self.clients = clients
        self.outbox = outbox
        self.active_states = {}
        self.states = {}
        self.readers = OrderedDict()
        self.item_count = 0
        self.key_bytes = 0
        self.key_bytes_max = limits.TRACKED_KEYS_BYTES_MAX
        self.broadcasts = {}
        self.prefix_lengths = {}
        self.broadcast_due = False

    # Clients.

    def enable(self, session: Session, options: TrackingState) -> None:
        """Enable tracking, or replace its options; prefixes are added to the existing ones."""
        state = session.tracking
        if state is None:
            state = session.tracking = TrackingState(session.id)
        if not self.states:
            self._set_listening(True)
        self.states[state] = self.active_states[state] = None
        state.is_on = True
        state.redirect_client_id = options.redirect_client_id
        state.redirect_broken = False
        state.broadcasting = options.broadcasting
        state.opt_in = options.opt_in
        state.opt_out = options.opt_out
        state.no_loop = options.no_loop
        if state.broadcasting:
            for prefix in options.prefixes or [b""]:
                self._add_prefix(state, prefix)
        session.update_needs_follow_up()

    def disable(self, session: Session) -> None:
        """Disable tracking. Keys that the client has read stay in the table: it may enable tracking again."""
        state = session.tracking
        if state is None:
            return
        self.active_states.pop(state, None)
        for prefix in list(state.prefixes):
            self._remove_prefix(state, prefix)
        state.clear()
        session.update_needs_follow_up()

    def remove_client(self, session: Session) -> None:
        """Remove the state of a client that has disconnected."""
        state = session.tracking
        if state is None:
            return
        self.disable(session)
        session.tracking = None
        self.states.pop(state, None)
        if not self.states:
            self._forget_all()
            self._set_listening(False)

    @cython.cfunc
    def _set_listening(self, on: cython.bint) -> cython.void:
        """Register on_change() and on_flushed() with the keyspace, or remove them."""
        database: Database
        for database in self.keyspace.databases:
            database.watched_keys.listen(self.on_change if on else None)
        self.keyspace.on_flushed = self.on_flushed if on else None

    @cython.cfunc
    def _add_prefix(self, state: TrackingState, prefix: bytes) -> cython.void:
        if prefix not in self.broadcasts:
            self.broadcasts[prefix] = BroadcastPrefix(prefix)
            self.prefix_lengths[len(prefix)] = self.prefix_lengths.get(len(prefix), 0) + 1
        broadcast: BroadcastPrefix = self.broadcasts[prefix]
        broadcast.states[state] = None
        state.prefixes[prefix] = None

    @cython.cfunc
    def _remove_prefix(self, state: TrackingState, prefix: bytes) -> cython.void:
        del state.prefixes[prefix]
        broadcast: BroadcastPrefix = self.broadcasts[prefix]
        del broadcast.states[state]
        if broadcast.states:
            return
        del self.broadcasts[prefix]
        self.prefix_lengths[len(prefix)] -= 1
        if not self.prefix_lengths[len(prefix)]:
            del self.prefix_lengths[len(prefix)]

    # Reads.

    @cython.ccall
    def on_read(self, state: TrackingState, command: Command, argv: list[bytes]) -> cython.void:
        """Store which keys a client has read with a command that has run.

        A script that only reads has no keys itself: each command that it calls has been passed here.
        """
        if not state.remembers_reads() or command.group == "scripting":
            return
        try:
            positions = command.key_positions(argv)
        except CommandError:
            return  # the command has failed for the same reason
        self.remember(state, [argv[at] for at in positions])

    @cython.ccall
    def remember(self, state: TrackingState, keys: list[bytes]) -> cython.void:
        """Store that the client has read the keys; invalidate the oldest keys if the table is too large."""
        if not state.remembers_reads():
            return
        for key in keys:
            self._add_reader(key, state)
        self._shrink(len(keys))

    @cython.cfunc
    def _add_reader(self, key: bytes, state: TrackingState) -> cython.void:
        readers: dict[TrackingState, None]
        found: object = self.readers.get(key)
        if found is None:
            self.readers[key] = state
            self.key_bytes += len(key)
            self.item_count += 1
        elif found is not state and isinstance(found, TrackingState):
            readers = {found: None, state: None}
            self.readers[key] = readers
            self.item_count += 1
        elif isinstance(found, dict):
            readers = found
            if state not in readers:
                if len(readers) >= STALE_READERS_MIN and len(readers) >= 2 * len(self.states):
                    self._drop_stale_readers(readers)
                readers[state] = None
                self.item_count += 1

    @cython.cfunc
    def _drop_stale_readers(self, readers: dict[TrackingState, None]) -> cython.void:
        """Remove the clients that have disconnected."""
        for state in list(readers):
            if state not in self.states:
                del readers[state]
                self.item_count -= 1

    @cython.cfunc
    def _shrink(self, added: cython.Py_ssize_t) -> cython.void:
        """Invalidate the oldest keys while the table is too large."""
        budget: cython.Py_ssize_t = added + FORGOTTEN_AT_ONCE_MAX
        while budget > 0 and self._is_too_large():
            self._invalidate(next(iter(self.readers)), False)
            budget -= 1

    @cython.cfunc
    def _is_too_large(self) -> cython.bint:
        key_count_max: cython.longlong = self.keyspace.settings.tracking_table_max_keys
        return 0 < key_count_max < len(self.readers) or self.key_bytes > self.key_bytes_max

    # Changes.

    def on_change(self, key: bytes, by_client: bool) -> None:
        """Queue invalidations of a changed key. by_client: the client of the request has changed it."""
        if key in self.readers:
            self._invalidate(key, by_client)
        for length in self.prefix_lengths:
            broadcast = self.broadcasts.get(key[:length]) if length <= len(key) else None
            if broadcast is not None:
                self.outbox.append((None, (broadcast, key, by_client)))

    @cython.cfunc
    def _invalidate(self, key: bytes, by_client: cython.bint) -> cython.void:
        """Remove the key; queue an invalidation for each of its readers."""
        found: object = self.readers.pop(key)
        self.key_bytes -= len(key)
        if isinstance(found, TrackingState):
            self.item_count -= 1
            self._queue_invalidation(found, key, by_client)
        elif isinstance(found, dict):
            self.item_count -= len(found)
            for state in found:
                self._queue_invalidation(state, key, by_client)

    @cython.cfunc
    def _queue_invalidation(self, state: TrackingState, key: bytes, by_client: cython.bint) -> cython.void:
        """Queue an invalidation for the client, if its present options ask for it."""
        if state.is_on and not state.broadcasting:
            self.outbox.append((None, (state, key, by_client and state.no_loop)))

    def on_flushed(self) -> None:
        """Queue an invalidation of all keys for every client: a database was flushed."""
        self._forget_all()
        for state in self.active_states:
            self.outbox.append((None, (state, None, False)))

    @cython.cfunc
    def _forget_all(self) -> cython.void:
        self.readers.clear()
        self.item_count = 0
        self.key_bytes = 0

    # Messages.

    @cython.ccall
    def is_sent_to(self, receiver: object, session: Session) -> cython.bint:
        """Return whether a queued invalidation is sent to the session: its own, or one redirected to it."""
        if not isinstance(receiver, TrackingState):
            return False
        state: TrackingState = receiver
        return state is session.tracking or state.redirect_client_id == session.id

    @cython.ccall
    def deliver(self, noted: Any, current: Session | None, woken: list[Session]) -> cython.void:
        """Send a queued invalidation to its client, or add it to what broadcast() sends.

        Args:
            noted: the second part of an item of the outbox. Either a TrackingState, the key (None: all keys),
                and whether to skip the message if its client is `current`; or a BroadcastPrefix, the key, and
                whether the client of the request changed it.
            current: the client of the request.
            woken: the sessions that received something are appended.
        """
        receiver, key, flag = noted
        if isinstance(receiver, BroadcastPrefix):
            assert key is not None
            self._add_to_broadcast(receiver, key, current.id if flag and current is not None else 0, woken)
            return
        state: TrackingState = receiver
        if flag and current is not None and current.id == state.client_id:
            return
        self._send(state, None if key is None else encode_keys([key]), woken)

    @cython.cfunc
    def _add_to_broadcast(
        self, broadcast: BroadcastPrefix, key: bytes, client_id: cython.longlong, woken: list[Session]
    ) -> cython.void:
        if not broadcast.states:
            return
        broadcast.changed_by[key] = client_id
        if not self.broadcast_due:
            self.broadcast_due = True
            first: TrackingState = next(iter(broadcast.states))
            session: Session | None = self.clients.get(first.client_id)
            if session is not None:  # so that the caller calls Engine.take_woken(), which calls broadcast()
                woken.append(session)

    @cython.ccall
    def broadcast(self, woken: list[Session]) -> cython.void:
        """Send the keys that have changed to the clients with BCAST; append their sessions to `woken`."""
        broadcast: BroadcastPrefix
        state: TrackingState
        self.broadcast_due = False
        for prefix in sorted(self.broadcasts):
            broadcast = self.broadcasts[prefix]
            if not broadcast.changed_by:
                continue
            changed = broadcast.changed_by
            broadcast.changed_by = {}
            keys: list[bytes] = sorted(changed)
            encoded: bytes = encode_keys(keys)
            for state in list(broadcast.states):
                if not state.no_loop:
                    self._send(state, encoded, woken)
                    continue
                others = [key for key in keys if changed[key] != state.client_id]
                if others:
                    self._send(state, encode_keys(others), woken)

    @cython.cfunc
    def _send(self, state: TrackingState, keys: bytes | None, woken: list[Session]) -> cython.void:
        """Send an encoded list of keys, None for all keys, to the client or to the one it redirects to."""
        session: Session | None = self.clients.get(state.client_id)
        if session is None or session.closing:
            return
        target: Session | None = (
            self.clients.get(state.redirect_client_id) if state.redirect_client_id else session
        )
        if target is None:
            state.redirect_broken = True
            if session.reply.protocol > 2:
                session.reply.push(2)
                session.reply.bulk(b"tracking-redir-broken")
                session.reply.integer(state.redirect_client_id)
                woken.append(session)
            return
        reply: ReplyWriter = target.reply
        if target.closing or (
            reply.protocol == 2 and not (state.redirect_client_id and target.subscription_count)
        ):
            return
        if reply.protocol == 2:
            reply.array(3)
            reply.bulk(b"message")
            reply.bulk(INVALIDATION_CHANNEL)
        else:
            reply.push(2)
            reply.bulk(b"invalidate")
        if keys is None:
            reply.null()
        else:
            reply.raw(keys)
        if not woken or woken[-1] is not target:
            woken.append(target)


def encode_keys(keys: list[bytes]) -> bytes:
    """Return the keys as an array of strings, the same in RESP2 and RESP3."""
    return b"*%d\r\n" % len(keys) + b"".join([b"$%d\r\n%b\r\n" % (len(key), key) for key in keys])
