"""What an operator may set and a command reads; CONFIG SET writes it through the host."""

from __future__ import annotations

import cython


@cython.final
@cython.cclass
class Settings:
    """Plain fields, with Redis's defaults. Zero means no limit for both node sizes."""

    __slots__ = (
        "databases",
        "notify_keyspace_events",
        "stream_compact_tombstones",
        "stream_idmp_duration",
        "stream_idmp_maxsize",
        "stream_node_max_bytes",
        "stream_node_max_entries",
    )

    databases: cython.Py_ssize_t
    notify_keyspace_events: cython.int  # the classes of events that are told, by bit: see events.py
    stream_compact_tombstones: cython.bint  # rewrite nodes that are mostly dead: see compaction.py
    stream_idmp_duration: cython.longlong  # seconds; of streams made from now on, as is the next
    stream_idmp_maxsize: cython.longlong  # iids of one producer
    stream_node_max_bytes: cython.longlong
    stream_node_max_entries: cython.longlong

    def __init__(self) -> None:
        self.databases = 16
        self.notify_keyspace_events = 0
        self.stream_compact_tombstones = True
        self.stream_idmp_duration = 100
        self.stream_idmp_maxsize = 100
        self.stream_node_max_bytes = 4096
        self.stream_node_max_entries = 100
