"""What an operator may set and a command reads; CONFIG SET writes it through the host."""

from __future__ import annotations

import cython

from headrace.visibility import Public


@cython.final
@cython.cclass
class Settings:
    """Plain fields, with Redis's defaults, but nothing is timed. Zero means no limit for both node sizes."""

    databases: Public[cython.Py_ssize_t]
    # milliseconds; what takes as long is an event. 0: nothing is
    latency_monitor_threshold: Public[cython.longlong]
    latency_percentiles: Public[tuple[float, ...]]  # that INFO latencystats shows
    latency_tracking: Public[cython.bint]  # keep the distribution of every command's durations
    notify_keyspace_events: Public[cython.int]  # the classes of events that are told, by bit: see events.py
    slowlog_log_slower_than: Public[cython.longlong]  # microseconds; -1: no request is logged
    slowlog_max_len: Public[cython.longlong]  # requests
    stream_compact_tombstones: Public[cython.bint]  # rewrite nodes that are mostly dead: see compaction.py
    stream_idmp_duration: Public[cython.longlong]  # seconds; of streams made from now on, as is the next
    stream_idmp_maxsize: Public[cython.longlong]  # iids of one producer
    stream_node_max_bytes: Public[cython.longlong]
    stream_node_max_entries: Public[cython.longlong]

    def __init__(self) -> None:
        self.databases = 16
        self.latency_monitor_threshold = 0
        self.latency_percentiles = (50.0, 99.0, 99.9)
        self.latency_tracking = False
        self.notify_keyspace_events = 0
        self.slowlog_log_slower_than = -1
        self.slowlog_max_len = 128
        self.stream_compact_tombstones = True
        self.stream_idmp_duration = 100
        self.stream_idmp_maxsize = 100
        self.stream_node_max_bytes = 4096
        self.stream_node_max_entries = 100


DEFAULT_SETTINGS = Settings()  # as they are when nobody says otherwise; never to be changed
