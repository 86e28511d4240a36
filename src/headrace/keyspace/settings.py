"""The settings that commands read. CONFIG SET writes them through the server interface."""

from __future__ import annotations

import cython

from headrace.visibility import Public


@cython.final
@cython.cclass
class Settings:
    """Settings with Redis's defaults, but no durations are measured. 0 means no limit for both node sizes."""

    busy_reply_threshold: Public[cython.longlong]  # ms after which a running script is slow; 0: never
    databases: Public[cython.Py_ssize_t]
    # milliseconds; a slower command is a latency event; 0: none is
    latency_monitor_threshold: Public[cython.longlong]
    latency_percentiles: Public[tuple[float, ...]]  # shown by INFO latencystats
    latency_tracking: Public[cython.bint]  # keep each command's distribution of durations
    notify_keyspace_events: Public[cython.int]  # enabled event classes, as bits: see events.py
    slowlog_log_slower_than: Public[cython.longlong]  # microseconds; -1: no request is logged
    slowlog_max_len: Public[cython.longlong]  # requests
    stream_compact_tombstones: Public[cython.bint]  # rewrite nodes of mostly tombstones: see compaction.py
    stream_idmp_duration: Public[cython.longlong]  # seconds; this and the next are defaults for new streams
    stream_idmp_maxsize: Public[cython.longlong]  # idempotent IDs (iids) of one producer
    stream_node_max_bytes: Public[cython.longlong]
    stream_node_max_entries: Public[cython.longlong]
    tracking_table_max_keys: Public[cython.longlong]  # keys remembered for CLIENT TRACKING; 0: no limit

    def __init__(self) -> None:
        self.busy_reply_threshold = 5000
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
        self.tracking_table_max_keys = 1_000_000


DEFAULT_SETTINGS = Settings()  # the defaults; never to be changed
