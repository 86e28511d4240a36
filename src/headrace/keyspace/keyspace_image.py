"""The keyspace as it was at one moment, for a snapshot that is written while commands go on.

    at the start                                                        the next epoch begins
    step by step     keys of each database, those of a part before      KeyWalk
                     one of them is added or removed
    until written    value of a key, before it is replaced or removed   _kept_values
                     stream, before its first change                    _kept_values, as a StreamImage
                     expiry time, before it changes                     _kept_times
    the walk         for each key: what is kept, else the present value, which is still the old one

A stream whose epoch is older than that of the image has not changed since the start, and has not been
written. New keys are not among the keys. A flush or a replacement of all data leaves the old dictionaries to
the image alone.

A view shares everything with the keyspace: it is valid only until the next change.
"""

from __future__ import annotations

import cython

from headrace.keyspace.key_expiry_times import KeyExpiryTimes
from headrace.keyspace.key_table import KeyTable
from headrace.keyspace.key_walk import KeyWalk
from headrace.keyspace.settings import Settings
from headrace.streams.stream import Stream
from headrace.streams.stream_image import StreamImage

WALK_STEP_BYTES = cython.declare(cython.longlong, 1 << 14)
SMALL_STREAM_STEPS = cython.declare(cython.longlong, 4)  # a stream of so many steps is written in one
MISSING = cython.declare(object, object())


@cython.final
@cython.cclass
class DatabaseImage:
    """The keys of one database, with their values and expiry times."""

    index: cython.Py_ssize_t
    epoch: cython.uint  # 0: this is a view
    walk_step_bytes: cython.longlong
    key_count: cython.Py_ssize_t  # of keys that have not expired
    expiring_count: cython.Py_ssize_t  # of those that will expire
    _keys: KeyWalk
    values: KeyTable  # of the database, at present or before a flush
    _times: KeyExpiryTimes
    _kept_values: dict[bytes, object]
    _kept_times: dict[bytes, int]
    _current_stream: StreamImage | None  # the last one that take_value() returned
    _walked_streams: list[StreamImage]  # those before; their nodes may be read until close()

    def __init__(
        self,
        index: cython.Py_ssize_t,
        epoch: cython.uint,
        walk_step_bytes: cython.longlong,
        values: KeyTable,
        times: KeyExpiryTimes,
        expired_count: cython.Py_ssize_t,
    ) -> None:
        self.index = index
        self.epoch = epoch
        self.walk_step_bytes = walk_step_bytes
        self.key_count = values.count - expired_count
        self.expiring_count = times.count - expired_count
        self._keys = KeyWalk(values.parts)
        self.values = values
        self._times = times
        self._kept_values = {}
        self._kept_times = {}
        self._current_stream = None
        self._walked_streams = []

    # ---- called before changes

    @cython.ccall
    def before_keys_change(self, part: cython.Py_ssize_t) -> cython.void:
        """Keep the keys of a part of the table: one is about to be added or removed."""
        self._keys.before_change(part)

    @cython.ccall
    def before_change(self, key: bytes, value: object) -> cython.void:
        """Keep the value at key, which a command may change in place."""
        stream: Stream
        if isinstance(value, Stream):
            stream = value
            if stream.snapshot_epoch < self.epoch:
                stream.snapshot_epoch = self.epoch
                self._kept_values.setdefault(key, stream.frozen_image(self.epoch))
        elif isinstance(value, bytearray):
            self._kept_values.setdefault(key, bytes(value))

    @cython.ccall
    def before_removal(self, key: bytes, value: object) -> cython.void:
        """Keep the value at key, which is about to be replaced or removed."""
        stream: Stream
        if isinstance(value, Stream):
            stream = value
            if stream.snapshot_epoch >= self.epoch:  # new, kept or written
                return
        self._kept_values.setdefault(key, value)

    @cython.ccall
    def before_expiry_change(self, key: bytes, at_ms: cython.longlong) -> cython.void:
        """Keep the expiry time of key, which is about to change; -1: it has none."""
        self._kept_times.setdefault(key, at_ms)

    # ---- the walk

    @cython.ccall
    def next_key(self) -> bytes | None:
        """Return the next key, also one that has expired; None after the last one."""
        return self._keys.next()

    @cython.ccall
    def take_value(self, key: bytes) -> object:
        """Return the value of a key of next_key(): a string or a StreamImage. Call it once for each key.

        The nodes of a StreamImage are valid until close(), its other parts until the next call of this
        method. A StreamImage that is a view, or a bytearray, is valid only until the next change.
        """
        stream: Stream
        image: StreamImage
        value: object = self._kept_values.pop(key, MISSING) if self._kept_values else MISSING
        self._end_walk()
        if value is MISSING:
            value = self.values.find(key)
        if isinstance(value, Stream):
            stream = value
            if self.epoch == 0:
                return stream.view_image()
            stream.snapshot_epoch = self.epoch
            small: cython.bint = stream.memory.total <= SMALL_STREAM_STEPS * self.walk_step_bytes
            value = stream.view_image() if small else stream.frozen_image(self.epoch)
        if isinstance(value, StreamImage):
            image = value
            if image.is_frozen():
                self._current_stream = image
        return value

    @cython.ccall
    def expiry_of(self, key: bytes) -> cython.longlong:
        """Return when a key expires, in milliseconds since 1970; -1 means never."""
        at: int | None = self._kept_times.get(key)
        return self._times.get(key) if at is None else at

    @cython.ccall
    def close(self) -> cython.void:
        """Free what is kept."""
        image: StreamImage
        for value in self._kept_values.values():
            if isinstance(value, StreamImage):
                image = value
                image.close()
        self._end_walk()
        for image in self._walked_streams:
            image.close()
        self._walked_streams = []
        self._kept_values = {}
        self._kept_times = {}
        self.values = KeyTable()
        self._times = KeyExpiryTimes()
        self._keys.close()

    @cython.cfunc
    def _end_walk(self) -> cython.void:
        """Free what only the walk over the last stream needs."""
        if self._current_stream is not None:
            self._current_stream.end_walk()
            self._walked_streams.append(self._current_stream)
            self._current_stream = None


@cython.final
@cython.cclass
class KeyspaceImage:
    """All databases at one moment. Created by Keyspace.freeze or view."""

    databases: list[DatabaseImage]
    libraries: list[bytes]  # the texts of the libraries of functions
    settings: Settings
    now_ms: cython.longlong  # keys that have expired at this time are not part of the image
    walk_step_bytes: cython.longlong  # of a walk, about

    def __init__(
        self,
        databases: list[DatabaseImage],
        libraries: list[bytes],
        settings: Settings,
        now_ms: cython.longlong,
        walk_step_bytes: cython.longlong,
    ) -> None:
        self.databases = databases
        self.libraries = libraries
        self.settings = settings
        self.now_ms = now_ms
        self.walk_step_bytes = walk_step_bytes

    def without_keys(self) -> KeyspaceImage:
        """Return an image of the same moment that has no databases."""
        return KeyspaceImage([], self.libraries, self.settings, self.now_ms, self.walk_step_bytes)
