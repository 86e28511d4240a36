"""The databases, each a table from key to value.

A value is `bytes` (a string), `bytearray` (a string changed in place) or a `Stream`. Reading a key that has
expired deletes it and finds nothing. Nothing here reads a clock: the engine sets `now`.

    no flag         an expired key is deleted, by the sweep or when it is accessed
    hide_expired    on a replica: it is missing, but only its primary deletes it
    pause_expiry    during CLIENT PAUSE: it is missing, and deleted afterwards
    ignore_expiry   it is present, for requests that were executed before it expired; overrides the others

A replica, too, drops old idempotency records and compacts tombstones: after a promotion its clock decides
about the records in any case, and compaction changes no content.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from random import Random
from typing import Any

import cython

from headrace import companion_keys, limits
from headrace.errors import WrongType
from headrace.keyspace import keyspace_image as image_module
from headrace.keyspace.blocking import Blocking
from headrace.keyspace.events import KeyspaceNotifier
from headrace.keyspace.expiry import DatabaseExpiryTimes
from headrace.keyspace.key_table import KeyTable
from headrace.keyspace.keyspace_image import DatabaseImage, KeyspaceImage
from headrace.keyspace.lazy_free import LazyFree
from headrace.keyspace.log_rate_limiter import LogRateLimiter
from headrace.keyspace.rule_registry import RuleRegistry
from headrace.keyspace.settings import Settings
from headrace.keyspace.watching import Watch, WatchedKeys
from headrace.streams.compaction import Compaction
from headrace.streams.idempotency import IdempotencySweeper
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.stream import Stream
from headrace.structures import footprint
from headrace.visibility import Public

# How many expired keys one sweep may delete.
SWEEP_KEYS_MAX = cython.declare(cython.Py_ssize_t, 1000)

# How many hidden keys RANDOMKEY may choose before it searches for another one.
RANDOM_TRIES_MAX = cython.declare(cython.Py_ssize_t, 100)

LOSS_LOG_LINES_MAX = 20
LOSS_LOG_INTERVAL_MS = 60_000

KEY_OVERHEAD_BYTES = cython.declare(cython.Py_ssize_t, limits.KEY_OVERHEAD_BYTES)  # memory besides its bytes
BYTES_OBJECT_OVERHEAD = cython.declare(cython.Py_ssize_t, 33)  # size of a bytes object besides its bytes


@cython.ccall
def type_name(value: object) -> bytes:
    """Return the type that TYPE shows for a value; b"none" for None."""
    if isinstance(value, Stream):
        return b"stream"
    return b"none" if value is None else b"string"


@cython.ccall
@cython.exceptval(-1, check=False)
def string_memory_bytes(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the memory that a string of n bytes takes."""
    return footprint.allocated_bytes(BYTES_OBJECT_OVERHEAD + n)


@cython.final
@cython.cclass
class Keyspace:
    """All databases, and what they share."""

    databases: list[Database]
    settings: Settings
    blocking: Blocking
    notifier: KeyspaceNotifier
    idempotency_sweeper: IdempotencySweeper
    compaction: Compaction
    rule_registry: RuleRegistry
    libraries: dict[bytes, bytes]  # of functions: the text by name
    now: Public[cython.longlong]  # milliseconds since 1970; the same for a whole batch of commands
    counts_lookups: Public[cython.bint]  # the running command only reads: count its hits and misses
    # no key expires: a log is replayed, which contains its own deletions
    ignore_expiry: Public[cython.bint]
    hide_expired: Public[cython.bint]  # expired keys are missing and stay: the primary deletes them
    pause_expiry: Public[cython.bint]  # expired keys are missing and stay until the pause ends
    has_ttls: cython.bint  # some key may have an expiry; False saves asking every database
    changes: Public[cython.longlong]  # number of modifications of keys
    hits: Public[cython.longlong]
    misses: Public[cython.longlong]
    expired_count: Public[cython.longlong]  # keys that expired
    memory: MemoryAccount  # memory account of all keys and values, and of waiting clients
    client_memory: MemoryAccount  # the latter: clients that are blocked, or watch keys
    cold_storage: Public[Any]  # the ColdStorage; None: all nodes are in memory
    lazy_free: LazyFree  # removed values that take long to free
    evictable: OrderedDict[Stream, bytes]  # streams with several nodes, and their keys
    on_expired: Public[Callable[[int, bytes], None] | None]  # called when a key of a database expires
    on_flushed: Public[Callable[[], object] | None]  # called when all keys of a database were removed
    loss_log_limiter: LogRateLimiter  # for lines about groups that have lost entries
    random: Public[Random]
    image_epoch: cython.uint  # how many images were made, plus one; see keyspace_image.py
    image: KeyspaceImage | None  # the present one

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings if settings is not None else Settings()
        self.memory = MemoryAccount()
        self.client_memory = MemoryAccount()
        self.client_memory.attach(self.memory)
        self.blocking = Blocking(self.client_memory)
        self.notifier = KeyspaceNotifier(self.settings)
        self.idempotency_sweeper = IdempotencySweeper()
        self.compaction = Compaction()
        self.rule_registry = RuleRegistry()
        self.libraries = {}
        self.cold_storage = None
        self.lazy_free = LazyFree(self.memory)
        self.evictable = OrderedDict()
        self.now = 0
        self.counts_lookups = False
        self.ignore_expiry = False
        self.hide_expired = False
        self.pause_expiry = False
        self.has_ttls = False
        self.changes = 0
        self.hits = 0
        self.misses = 0
        self.expired_count = 0
        self.on_expired = None
        self.on_flushed = None
        self.loss_log_limiter = LogRateLimiter(LOSS_LOG_LINES_MAX, LOSS_LOG_INTERVAL_MS)
        self.random = Random()
        self.image_epoch = 1
        self.image = None
        self.databases = [Database(self, index) for index in range(self.settings.databases)]

    @cython.ccall
    def database(self, index: cython.Py_ssize_t) -> Database | None:
        """Return the database of that number, or None if there is none."""
        if 0 <= index < len(self.databases):
            return self.databases[index]
        return None

    @cython.ccall
    def swap(self, first: cython.Py_ssize_t, second: cython.Py_ssize_t) -> cython.void:
        """Exchange the keys of two databases; invalidate watches and signal waiters of both."""
        a: Database = self.databases[first]
        b: Database = self.databases[second]
        if first == second:
            return
        a.invalidate_all_watchers()
        b.invalidate_all_watchers()
        a.values, b.values = b.values, a.values
        a.expiry_times, b.expiry_times = b.expiry_times, a.expiry_times
        a.memory, b.memory = b.memory, a.memory
        a.image, b.image = b.image, a.image
        a.invalidate_all_watchers()
        b.invalidate_all_watchers()
        self.rule_registry.swap(first, second)
        self.changes += 1
        self.blocking.signal_all(first)
        self.blocking.signal_all(second)
        for database in (a, b):
            for key in self.blocking.waited_keys(database.index):
                value = database.values.find(key)
                if isinstance(value, Stream):
                    self.rule_registry.mark_changed(value)  # its rules had no timer without a waiting client

    @cython.ccall
    def hides_expired(self) -> cython.bint:
        """Return whether expired keys are missing without being deleted."""
        return self.hide_expired or self.pause_expiry

    @cython.ccall
    def flush_all(self) -> cython.Py_ssize_t:
        """Remove all keys of all databases; return how many there were."""
        database: Database
        removed: cython.Py_ssize_t = 0
        for database in self.databases:
            removed += database.flush()
        self._notify_flushed()
        return removed

    @cython.ccall
    def flush_database(self, database: Database) -> cython.void:
        """Remove all keys of the database."""
        database.flush()
        self._notify_flushed()

    @cython.cfunc
    def _notify_flushed(self) -> cython.void:
        if self.on_flushed is not None:
            self.on_flushed()

    def replace_databases(self, other: Keyspace) -> None:
        """Replace all data with those of the other keyspace, and close the other keyspace.

        Both must have the same number of databases. Invalidates watches and signals waiters; settings,
        events and counters stay.
        """
        database: Database
        self.rule_registry.clear()
        self.libraries = dict(other.libraries)
        for database in self.databases:
            database.replace_data(other.databases[database.index])
        self._set_evictable(other.evictable)
        self.idempotency_sweeper = other.idempotency_sweeper
        self.compaction = other.compaction
        self.has_ttls = other.has_ttls
        if self.cold_storage is not None:
            self.cold_storage.left_out_removal_count = 0  # of the replaced data
            self.cold_storage.left_out_removal_reason = ""
        other.close()
        self._notify_flushed()

    @cython.cfunc
    def _set_evictable(self, streams: OrderedDict[Stream, bytes]) -> cython.void:
        database: Database
        self.evictable = streams
        for database in self.databases:
            database.memory.evictable_ref = weakref.ref(streams)

    @cython.ccall
    def forget_evictable(self, memory: MemoryAccount) -> cython.void:
        """Remove the streams of the database that has this account from `evictable`."""
        stream: Stream
        if not self.evictable:
            return
        left: OrderedDict[Stream, bytes] = OrderedDict()
        for stream, key in self.evictable.items():
            if stream.memory.parent is not memory:
                left[stream] = key
        self._set_evictable(left)

    def close(self) -> None:
        """Free all data; the keyspace must not be used any more.

        A keyspace and its databases refer to each other: without this, the data would stay until the garbage
        collector finds the cycle.
        """
        self.databases = []
        self.evictable = OrderedDict()
        self.rule_registry.clear()

    def freeze(
        self, now_ms: cython.longlong, walk_step_bytes: cython.longlong = image_module.WALK_STEP_BYTES
    ) -> KeyspaceImage:
        """Return an image of all data as they are now, which stays so until release_image().

        Keys that have expired at now_ms (Unix milliseconds) are not part of it. There may be one image at a
        time. Until release_image(), nodes are not compacted and old idempotency records are not removed.
        walk_step_bytes: about how much a walk over the image writes between two steps.
        """
        database: Database
        assert self.image is None, "there is an image already"
        self.image_epoch += 1
        self.image = self._make_image(self.image_epoch, now_ms, walk_step_bytes)
        self.compaction.paused = True
        self.idempotency_sweeper.paused = True
        for database in self.databases:
            database.image = self.image.databases[database.index]
            database.expiry_times.image = database.image
        return self.image

    def latest_ms_without_expired_keys(self, now_ms: cython.longlong) -> int:
        """Return a time, at most now_ms, at which no key had expired: an image of that time has all keys.

        An image with a position of replication needs such a time. At that position, an expired key that is
        not deleted yet is still part of the data: its DEL follows. A server that loads the image without the
        key would not send the DEL to its replicas, which may have the key.
        """
        database: Database
        first: cython.longlong
        for database in self.databases:
            first = database.expiry_times.next_expiry()
            if 0 <= first <= now_ms:
                now_ms = first - 1
        return now_ms

    def view(self, now_ms: cython.longlong) -> KeyspaceImage:
        """Return an image that shares everything with the keyspace. It is valid until the next change."""
        return self._make_image(0, now_ms, image_module.WALK_STEP_BYTES)

    @cython.cfunc
    def _make_image(
        self, epoch: cython.uint, now_ms: cython.longlong, walk_step_bytes: cython.longlong
    ) -> KeyspaceImage:
        database: Database
        images: list[DatabaseImage] = []
        for database in self.databases:
            images.append(
                DatabaseImage(
                    database.index,
                    epoch,
                    walk_step_bytes,
                    database.values,
                    database.expiry_times.times,
                    database.expiry_times.count_due(now_ms),
                )
            )
        return KeyspaceImage(images, list(self.libraries.values()), self.settings, now_ms, walk_step_bytes)

    def release_image(self, image: KeyspaceImage) -> None:
        """Free an image of freeze(), which must not be used any more."""
        database: Database
        one: DatabaseImage
        if image is not self.image:
            return
        self.image = None
        self.compaction.paused = False
        self.idempotency_sweeper.paused = False
        for database in self.databases:
            database.image = database.expiry_times.image = None
        present: set[int] = {id(database.values) for database in self.databases}
        for one in image.databases:
            if id(one.values) not in present:  # all keys were removed meanwhile
                self.lazy_free.add_table(one.values)
            one.close()

    @cython.ccall
    def sweep_step(self) -> cython.bint:
        """Delete some expired keys and old idempotency records; return whether expired keys may be left."""
        database: Database
        budget: cython.Py_ssize_t = SWEEP_KEYS_MAX
        if self.ignore_expiry:
            return False
        for database in self.databases:
            budget -= database.sweep(budget)
        self.idempotency_sweeper.sweep(self.now)
        return budget <= 0

    @cython.ccall
    def next_expiry(self) -> cython.longlong:
        """Return when a key or idempotency record next expires, in Unix milliseconds; -1 means never."""
        if self.ignore_expiry:
            return -1
        database: Database
        earliest: cython.longlong = self.idempotency_sweeper.next_sweep_ms()
        at: cython.longlong
        if not self.has_ttls or self.hides_expired():
            return earliest
        self.has_ttls = False
        for database in self.databases:
            if database.expiry_times.times.count == 0:
                continue
            self.has_ttls = True
            at = database.expiry_times.next_expiry()
            if at >= 0 and (earliest < 0 or at < earliest):
                earliest = at
        return earliest

    @cython.ccall
    def unwatch(self, watch: Watch) -> cython.void:
        """Stop watching all keys of the watch."""
        for index, key in watch.keys:
            self.databases[index].watched_keys.remove(key, watch)
        self.client_memory.add(-watch.memory_bytes)


@cython.final
@cython.cclass
class Database:
    """One numbered database. Commands change it, then call mark_modified() and signal_ready()."""

    keyspace: Keyspace
    index: cython.Py_ssize_t
    values: KeyTable
    expiry_times: DatabaseExpiryTimes
    watched_keys: WatchedKeys
    image: DatabaseImage | None  # for the snapshot that is being written
    memory: MemoryAccount  # memory account of its keys and values

    def __init__(self, keyspace: Keyspace, index: cython.Py_ssize_t) -> None:
        self.keyspace = keyspace
        self.index = index
        self.values = KeyTable()
        self._open_account()
        self.expiry_times = DatabaseExpiryTimes(self.memory)
        self.watched_keys = WatchedKeys()
        self.image = None

    # Reading.

    @cython.ccall
    def find(self, key: bytes) -> object:
        """Return the key's value; None if it does not exist or has expired.

        With `counts_lookups` (for commands that only read), a hit or a miss is counted. Otherwise the caller
        may change the value in place, so what a running snapshot needs of the value is copied first.
        """
        value = self.values.find(key)
        if value is not None and self.expiry_times.times.count and self._expire_if_needed(key):
            value = None
        if self.keyspace.counts_lookups:
            if value is None:
                self.keyspace.misses += 1
                if self.keyspace.settings.notify_keyspace_events:
                    self.keyspace.notifier.notify("m", b"keymiss", key, self.index)
            else:
                self.keyspace.hits += 1
        elif self.image is not None:
            self.image.before_change(key, value)
        return value

    @cython.ccall
    def stream(self, key: bytes) -> Stream | None:
        """Return the stream at the key, or None. Raises WrongType if it holds another type."""
        value = self.find(key)
        if value is None:
            return None
        if not isinstance(value, Stream):
            raise WrongType()
        return value

    @cython.ccall
    def string(self, key: bytes) -> bytes | bytearray | None:
        """Return the string at the key, or None. Raises WrongType if it holds another type."""
        value = self.find(key)
        if value is None or isinstance(value, bytes):
            return value
        if not isinstance(value, bytearray):
            raise WrongType()
        return value

    @cython.ccall
    def contains(self, key: bytes) -> cython.bint:
        """Return whether the key exists. Counts neither a hit nor a miss."""
        return self.values.find(key) is not None and not (
            self.expiry_times.times.count and self._expire_if_needed(key)
        )

    @cython.ccall
    def is_hidden(self, key: bytes) -> cython.bint:
        """Return whether the key has expired and is missing, but must not be deleted now."""
        return self.keyspace.hides_expired() and self.values.find(key) is not None and not self.contains(key)

    @cython.ccall
    def size(self) -> cython.Py_ssize_t:
        """Return the number of keys, without those that have expired and will be deleted.

        While expired keys are hidden instead of deleted (see hides_expired()), they are counted.
        """
        return self.values.count - self.count_due()

    @cython.ccall
    def count_due(self) -> cython.Py_ssize_t:
        """Return how many keys have expired and are not deleted yet; 0 if they are hidden."""
        if self.keyspace.ignore_expiry or self.keyspace.hides_expired():
            return 0
        return self.expiry_times.count_due(self.keyspace.now)

    @cython.cfunc
    def _is_visible(self, key: bytes) -> cython.bint:
        """Return whether an existing key has not expired. Does not delete it: there may be a million."""
        return self.keyspace.ignore_expiry or not self.expiry_times.is_due(key, self.keyspace.now)

    @cython.ccall
    def keys(self) -> list[bytes]:
        """Return all keys that have not expired; see key_table.py for their order."""
        next_expiry: cython.longlong = self.expiry_times.next_expiry()
        if 0 <= next_expiry <= self.keyspace.now:
            return [key for key in self.values if self._is_visible(key)]
        return list(self.values)

    @cython.ccall
    def random_key(self) -> bytes | None:
        """Return a random key, or None if there is none; a hidden one if there are no others."""
        key: bytes | None = None
        if not self.size():
            return None
        for _ in range(RANDOM_TRIES_MAX):
            key = self.values.key_at(self.keyspace.random.randrange(self.values.count))
            if self._is_visible(key):
                return key
        visible = self._first_visible_key()
        return key if visible is None and self.keyspace.hides_expired() else visible

    @cython.cfunc
    def _first_visible_key(self) -> bytes | None:
        """Return a key that is not hidden, or None."""
        for key in self.values:
            if self._is_visible(key):
                return key
        return None

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return (next cursor, some keys). Cursor 0 begins; a next cursor of 0 means the end."""
        next_cursor, keys = self.values.scan(cursor, count)
        return next_cursor, [key for key in keys if self._is_visible(key)]

    # Changing.

    @cython.ccall
    def put(self, key: bytes, value: object) -> cython.void:
        """Set the key's value and remove its expiry."""
        if self.keyspace.settings.notify_keyspace_events:
            self.notify_put(key, value)
        self._set(key, value)
        if self.expiry_times.times.count:
            self.expiry_times.remove(key)

    @cython.ccall
    def notify_put(self, key: bytes, value: object) -> cython.void:
        """Publish that the key is new, or that its value is overwritten. Call it before the change."""
        notifier: KeyspaceNotifier = self.keyspace.notifier
        if not self.contains(key):
            notifier.notify("n", b"new", key, self.index)
            return
        notifier.notify("o", b"overwritten", key, self.index)
        if type_name(self.values.find(key)) != type_name(value):
            notifier.notify("c", b"type_changed", key, self.index)

    @cython.ccall
    def replace(self, key: bytes, value: object) -> cython.void:
        """Set the value of an existing key; its expiry stays.

        If `value` is the present object, changed in place, call account_growth() first.
        """
        if self.values.find(key) is not value:
            self._set(key, value)

    @cython.ccall
    def account_growth(self, before: cython.Py_ssize_t, after: cython.Py_ssize_t) -> cython.void:
        """Account for a string changed in place from `before` to `after` bytes."""
        self.memory.add(string_memory_bytes(after) - string_memory_bytes(before))

    @cython.ccall
    def remove(self, key: bytes) -> cython.bint:
        """Remove the key; return whether it existed."""
        if not self.contains(key):
            return False
        self._delete(key)
        if self.expiry_times.times.count:
            self.expiry_times.remove(key)
        return True

    @cython.ccall
    def flush(self) -> cython.Py_ssize_t:
        """Remove all keys; return how many there were."""
        removed: cython.Py_ssize_t = self.values.count
        self.invalidate_all_watchers()
        self.keyspace.rule_registry.on_flushed(self.index)
        self.keyspace.forget_evictable(self.memory)
        self._drop_values()
        self.values = KeyTable()
        self._open_account()
        self.expiry_times = DatabaseExpiryTimes(self.memory)
        self.keyspace.changes += removed
        if self.keyspace.blocking.count:
            self.keyspace.blocking.signal_all(self.index)
        return removed

    @cython.ccall
    def replace_data(self, other: Database) -> cython.void:
        """Take over the keys of another keyspace's database. The caller must take over `evictable`, too."""
        stream: Stream
        self.invalidate_all_watchers()
        self.keyspace.changes += self.values.count + other.values.count
        self._drop_values()
        self.values = other.values
        self.expiry_times = other.expiry_times
        self.memory = other.memory
        self.memory.attach(self.keyspace.memory)
        for value in self.values.values():
            if isinstance(value, Stream):
                stream = value
                stream.snapshot_epoch = self.keyspace.image_epoch
                key = stream.memory.stream_key
                if key is not None:
                    self.keyspace.rule_registry.on_stored(self.index, key, stream)
        self.invalidate_all_watchers()
        if self.keyspace.blocking.count:
            self.keyspace.blocking.signal_all(self.index)

    @cython.cfunc
    def _drop_values(self) -> cython.void:
        """Stop accounting for all values, and queue them to be freed; the caller replaces the table."""
        self.memory.detach()
        if self.image is None:
            self.keyspace.lazy_free.add_table(self.values)
            self.keyspace.lazy_free.add_times(self.expiry_times.times)
        self.image = None  # its values are not reachable any more, so they stay as they are

    @cython.cfunc
    def _open_account(self) -> cython.void:
        self.memory = MemoryAccount()
        self.memory.evictable_ref = weakref.ref(self.keyspace.evictable)
        self.memory.attach(self.keyspace.memory)

    # Snapshots.

    @cython.ccall
    def before_change(self, key: bytes) -> cython.void:
        """Let a snapshot keep the key's value. Call it before a change that follows no find()."""
        if self.image is not None:
            self.image.before_change(key, self.values.find(key))

    # Memory accounting.

    @cython.cfunc
    def _set(self, key: bytes, value: object) -> cython.void:
        """Set the key's value, whether or not it had one."""
        stream: Stream
        memory: MemoryAccount = self.memory
        before: object = self.values.find(key)
        if before is not None:
            if self.image is not None:
                self.image.before_removal(key, before)
            self._release_memory(key, before)
        elif self.image is not None:
            self.image.before_keys_change(self.values.part_index(key))
        self.values.put(key, value, before is None)
        memory.add(KEY_OVERHEAD_BYTES + string_memory_bytes(len(key)))
        if isinstance(value, Stream):
            stream = value
            stream.memory.stream_key = key
            stream.memory.attach(memory)
            if stream.snapshot_epoch == 0:
                stream.snapshot_epoch = self.keyspace.image_epoch
            if stream.live_counts is not None:
                stream.memory.mark_evictable(stream)
            if stream.may_have_rules or key.endswith(companion_keys.SCHEDULED_SUFFIX):
                self.keyspace.rule_registry.on_stored(self.index, key, stream)
        else:
            memory.add(string_memory_bytes(len(value)))  # type: ignore[arg-type]

    @cython.cfunc
    def _delete(self, key: bytes) -> cython.void:
        """Delete an existing key."""
        value = self.values.find(key)
        if self.image is not None:
            self.image.before_keys_change(self.values.part_index(key))
            self.image.before_removal(key, value)
        self.values.delete(key)
        self._release_memory(key, value)

    @cython.cfunc
    def _release_memory(self, key: bytes, value: object) -> cython.void:
        stream: Stream
        memory: MemoryAccount = self.memory
        memory.add(-KEY_OVERHEAD_BYTES - string_memory_bytes(len(key)))
        if isinstance(value, Stream):
            stream = value
            stream.memory.detach()
            self.keyspace.evictable.pop(stream, None)
            if len(self.keyspace.rule_registry.streams):
                self.keyspace.rule_registry.on_removed(stream)
            if self.image is None:  # else it may be in a snapshot
                self.keyspace.lazy_free.add_stream(stream)
        else:
            memory.add(-string_memory_bytes(len(value)))  # type: ignore[arg-type]

    # Expiry.

    @cython.ccall
    def expiry(self, key: bytes) -> cython.longlong:
        """Return when an existing key expires, in milliseconds since 1970; -1 means never."""
        return self.expiry_times.get(key)

    @cython.ccall
    def set_expiry(self, key: bytes, at_ms: cython.longlong) -> cython.void:
        """Set an existing key's expiry, in milliseconds since 1970."""
        self.expiry_times.set(key, at_ms)
        self.keyspace.has_ttls = True

    @cython.ccall
    def clear_expiry(self, key: bytes) -> cython.bint:
        """Remove the key's expiry; return whether it had one."""
        return self.expiry_times.remove(key)

    @cython.ccall
    def sweep(self, budget: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Delete at most `budget` expired keys; return how many were deleted."""
        deleted: cython.Py_ssize_t = 0
        if self.keyspace.ignore_expiry or self.keyspace.hides_expired():
            return 0
        while deleted < budget:
            key = self.expiry_times.next_due_key(self.keyspace.now)
            if key is None:
                break
            self._delete_expired(key)
            deleted += 1
        return deleted

    @cython.cfunc
    def _expire_if_needed(self, key: bytes) -> cython.bint:
        """Return whether the key is missing because it has expired; delete it unless it is only hidden."""
        if self.keyspace.ignore_expiry or not self.expiry_times.is_due(key, self.keyspace.now):
            return False
        if not self.keyspace.hides_expired():
            self._delete_expired(key)
        return True

    @cython.cfunc
    def _delete_expired(self, key: bytes) -> cython.void:
        """Delete an expired key. No other code does that."""
        self._delete(key)
        self.expiry_times.remove(key)
        self.keyspace.expired_count += 1
        self.watched_keys.invalidate_and_report(key, False)
        self.keyspace.blocking.signal(self.index, key)
        if self.keyspace.settings.notify_keyspace_events:
            self.keyspace.notifier.notify("x", b"expired", key, self.index)
        if self.keyspace.on_expired is not None:
            self.keyspace.on_expired(self.index, key)

    # Notifications.

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def mark_modified(self, key: bytes) -> cython.int:
        """Count a modification of the key; invalidate its watchers.

        Returns 0: an int is cheaper to check for errors than void.
        """
        self.keyspace.changes += 1
        self.invalidate_watchers(key)
        return 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def invalidate_watchers(self, key: bytes) -> cython.int:
        """Invalidate the key's watchers, for modifications that are counted elsewhere. Returns 0."""
        if self.watched_keys.has_observers:
            self.watched_keys.invalidate_and_report(key, True)
        return 0

    @cython.ccall
    def mark_modified_by_server(self, key: bytes) -> cython.void:
        """Count a modification that the server made on its own; invalidate the key's watchers."""
        self.keyspace.changes += 1
        self.watched_keys.invalidate_and_report(key, False)

    @cython.ccall
    def signal_ready(self, key: bytes) -> cython.void:
        """Record that the key has new data: clients that are blocked on it are retried after the command."""
        if self.keyspace.blocking.count:
            self.keyspace.blocking.signal(self.index, key)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def has_waiters(self, key: bytes) -> cython.bint:
        """Return whether clients wait for the key."""
        blocking: Blocking = self.keyspace.blocking
        return blocking.count > 0 and (self.index, key) in blocking.queues

    @cython.ccall
    def watch(self, key: bytes, watch: Watch) -> cython.void:
        """Add the key to the watch, which is invalidated when the key changes or expires."""
        if watch.contains(self.index, key):
            return
        self.contains(key)  # an expiry that has passed must not invalidate later
        self.keyspace.client_memory.add(watch.add(self.index, key, self.is_hidden(key)))
        self.watched_keys.add(key, watch)

    @cython.ccall
    def invalidate_all_watchers(self) -> cython.void:
        """Invalidate the watchers of all existing keys, before or after all keys are removed or replaced."""
        for key in self.watched_keys.watches:
            if self.values.find(key) is not None:
                self.watched_keys.invalidate_watches(key)
