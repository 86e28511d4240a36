"""Apply maxmemory and maxmemory-policy, and return the fields of INFO memory.

used_memory            memory of keys and values, and of the keys that clients watch or are blocked
                       on: what `maxmemory` limits
used_memory_rss        resident memory of the process: used_memory, the program, the buffers of
                       clients, and unused parts of the heap
used_memory_rss_startup   used_memory_rss before any data was loaded
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.commands.server.memory_report import overhead_bytes
from headrace.commands.server_interface import InfoFields
from headrace.engine.engine import Engine
from headrace.plurals import human_bytes
from headrace.server.config.config import Config

NO_LIMIT = (1 << 63) - 1
# What does not exist here.
ABSENT_INFO_FIELDS = (
    "mem_replica_full_sync_buffer",
    "mem_cluster_links",
    "mem_overhead_db_hashtable_rehashing",
    "active_defrag_running",
)


def apply(config: Config, engine: Engine) -> None:
    """Apply maxmemory and maxmemory-policy to the engine."""
    engine.keyspace.memory.limit = config.number("maxmemory") or NO_LIMIT
    engine.write_gate.eviction.policy = config.text("maxmemory-policy")


def update_memory_peak(engine: Engine) -> None:
    """Update the peak of the data's memory."""
    eviction = engine.write_gate.eviction
    if engine.keyspace.memory.total > eviction.peak:
        eviction.peak, eviction.peak_ms = engine.keyspace.memory.total, engine.keyspace.now


def info_fields(config: Config, engine: Engine, startup: int) -> InfoFields:
    """Return the fields of INFO memory.

    startup: the resident memory of the process before any data was loaded, in bytes.
    """
    update_memory_peak(engine)
    eviction = engine.write_gate.eviction
    used, peak = engine.keyspace.memory.total, eviction.peak
    resident = resident_bytes()
    overhead = overhead_bytes(engine.keyspace) + engine.keyspace.client_memory.total
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = config.number("maxmemory")
    return [
        ("used_memory", used),
        ("used_memory_human", human_bytes(used)),
        ("used_memory_rss", resident),
        ("used_memory_rss_human", human_bytes(resident)),
        ("used_memory_rss_startup", startup),
        ("used_memory_peak", peak),
        ("used_memory_peak_human", human_bytes(peak)),
        ("used_memory_peak_time", eviction.peak_ms // 1000),
        ("used_memory_peak_perc", f"{100 * used / max(peak, 1):.2f}%"),
        ("used_memory_overhead", overhead),
        ("used_memory_startup", 0),
        ("used_memory_dataset", used - overhead),
        ("used_memory_dataset_perc", f"{100 * (used - overhead) / max(used, 1):.2f}%"),
        *allocator_fields(used, resident),
        ("total_system_memory", total),
        ("total_system_memory_human", human_bytes(total)),
        ("maxmemory", most),
        ("maxmemory_human", human_bytes(most)),
        ("maxmemory_policy", config.text("maxmemory-policy")),
        ("mem_fragmentation_ratio", f"{max(resident - startup, 0) / max(used, 1):.2f}"),
        ("mem_fragmentation_bytes", max(resident - startup, 0) - used),
        ("mem_not_counted_for_evict", 0),
        ("mem_allocator", "libc"),
        *((name, 0) for name in ABSENT_INFO_FIELDS),
        ("lazyfree_pending_objects", engine.keyspace.lazy_free.pending_count()),
        ("lazyfreed_objects", engine.keyspace.lazy_free.freed),
    ]


def allocator_fields(used: int, resident: int) -> InfoFields:
    """Return the fields of the allocator. It keeps no statistics: the data's memory counts as allocated."""
    return [
        ("allocator_allocated", used),
        ("allocator_active", used),
        ("allocator_resident", resident),
        ("allocator_muzzy", 0),
        ("allocator_frag_ratio", "1.00"),
        ("allocator_frag_bytes", 0),
        ("allocator_rss_ratio", f"{resident / max(used, 1):.2f}"),
        ("allocator_rss_bytes", resident - used),
        ("rss_overhead_ratio", "1.00"),
        ("rss_overhead_bytes", 0),
    ]


def resident_bytes() -> int:
    """Return this process's resident memory in bytes; 0 if the system does not provide it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
