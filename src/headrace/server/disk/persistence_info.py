"""The fields of INFO persistence: about loading, snapshots and the log."""

from __future__ import annotations

from headrace.commands.server_interface import InfoFields
from headrace.server.commit import Durability
from headrace.server.disk.saving import REWRITE, SNAPSHOT, SaveManager
from headrace.server.disk.snapshot_job import SnapshotJob
from headrace.server.disk.startup import Startup


def info_fields(
    saving: SaveManager, durability: Durability, startup: Startup, job: SnapshotJob | None, now: int
) -> InfoFields:
    """Return the fields of INFO persistence.

    Args:
        job: the snapshot that is being written, also if it is for replicas.
        now: in milliseconds since 1970.
    """
    done, total = (0, 0) if job is None else (job.keys_written, job.key_count)
    loading = durability.engine.write_gate.loading
    rows: InfoFields = [
        ("loading", int(loading)),
        ("async_loading", 0),
        ("current_cow_peak", 0),
        ("current_cow_size", 0),
        ("current_cow_size_age", 0),
        ("current_fork_perc", "0.00" if job is None else f"{100 * job.fraction_done():.2f}"),
        ("current_save_keys_processed", done),
        ("current_save_keys_total", total),
        *snapshot_fields(saving, startup, now),
        *rewrite_fields(saving, durability, now),
        ("module_fork_in_progress", 0),
        ("module_fork_last_cow_size", 0),
    ]
    if durability.log is not None:
        rows += log_fields(saving, durability)
    return rows + startup.info() if loading else rows


def snapshot_fields(saving: SaveManager, startup: Startup, now: int) -> InfoFields:
    """Return the fields of snapshots."""
    return [
        ("rdb_changes_since_last_save", saving.changes_since_save()),
        ("rdb_bgsave_in_progress", int(saving.is_running(SNAPSHOT))),
        ("rdb_last_save_time", saving.saved_ms // 1000),
        ("rdb_last_bgsave_status", "err" if saving.save_failed else "ok"),
        ("rdb_last_bgsave_time_sec", saving.save_took_s),
        ("rdb_current_bgsave_time_sec", seconds_running(saving, SNAPSHOT, now)),
        ("rdb_saves", saving.saves),
        ("rdb_last_cow_size", 0),
        ("rdb_last_load_keys_expired", 0),
        ("rdb_last_load_keys_loaded", startup.keys_loaded),
    ]


def rewrite_fields(saving: SaveManager, durability: Durability, now: int) -> InfoFields:
    """Return the fields of log rewrites; the log may be off."""
    rewriting = saving.is_running(REWRITE)
    waiting = not rewriting and REWRITE in saving.queued
    return [
        ("aof_enabled", int(durability.log is not None)),
        ("aof_rewrite_in_progress", int(rewriting)),
        ("aof_rewrite_scheduled", int(waiting)),
        ("aof_last_rewrite_time_sec", saving.rewrite_took_s),
        ("aof_current_rewrite_time_sec", seconds_running(saving, REWRITE, now)),
        ("aof_last_bgrewrite_status", "err" if saving.rewrite_failures else "ok"),
        ("aof_rewrites", saving.rewrites),
        ("aof_rewrites_consecutive_failures", saving.rewrite_failures),
        ("aof_last_write_status", "err" if durability.failure else "ok"),
        ("aof_last_cow_size", 0),
    ]


def log_fields(saving: SaveManager, durability: Durability) -> InfoFields:
    """Return the fields of a log that is on."""
    log = durability.log
    assert log is not None
    return [
        ("aof_current_size", log.size),
        ("aof_base_size", log.base_size),
        ("aof_pending_rewrite", 0),
        ("aof_buffer_length", log.unwritten_bytes),
        ("aof_pending_bio_fsync", int(log.syncing)),
        ("aof_delayed_fsync", log.delayed_commits),
    ]


def seconds_running(saving: SaveManager, job: str, now: int) -> int:
    """Return for how many seconds that job has been running; -1 if it is not."""
    return (now - saving.job_started_ms) // 1000 if saving.job_kind == job else -1
