"""Copy the directives that the engine reads while it executes commands to its settings."""

from __future__ import annotations

from headrace.keyspace.settings import Settings
from headrace.server.config.config import Config


def apply_settings(config: Config, settings: Settings) -> None:
    """Copy the configuration to the engine's settings."""
    settings.busy_reply_threshold = config.number("busy-reply-threshold")
    settings.databases = config.number("databases")
    settings.latency_monitor_threshold = config.number("latency-monitor-threshold")
    settings.latency_percentiles = config.numbers("latency-tracking-info-percentiles")
    settings.latency_tracking = config.flag("latency-tracking")
    settings.notify_keyspace_events = config.number("notify-keyspace-events")
    settings.slowlog_log_slower_than = config.number("slowlog-log-slower-than")
    settings.slowlog_max_len = config.number("slowlog-max-len")
    settings.stream_compact_tombstones = config.flag("stream-compact-tombstones")
    settings.stream_idmp_duration = config.number("stream-idmp-duration")
    settings.stream_idmp_maxsize = config.number("stream-idmp-maxsize")
    settings.stream_node_max_bytes = config.number("stream-node-max-bytes")
    settings.stream_node_max_entries = config.number("stream-node-max-entries")
    settings.tracking_table_max_keys = config.number("tracking-table-max-keys")
