"""MEMORY STATS, MALLOC-STATS and DOCTOR: the process's memory, as numbers and in words.

The allocators report no figures. Two numbers are known: the accounted memory of keys and values
(`used_memory`) and the process's resident set. Only the latter contains the buffers of clients.
"""

from __future__ import annotations

from typing import Any

from headrace.commands.call import Call
from headrace.keyspace.keyspace import Keyspace
from headrace.limits import KEY_OVERHEAD_BYTES, KEY_TTL_OVERHEAD_BYTES

# Thresholds of MEMORY DOCTOR.
DOCTOR_USED_BYTES_MIN = 5 << 20
HIGH_PEAK_RATIO = 1.5
HIGH_RESIDENT_RATIO = 1.4
HIGH_CLIENT_BYTES_MEAN = 200 << 10
NEARLY_FULL_RATIO = 0.9


def all_client_buffer_bytes(call: Call) -> int:
    """Return the bytes of all clients' buffers."""
    clients = call.engine.clients.values()
    return sum(
        session.reply.cap + session.subscription_bytes + sum(call.server.query_buffer_sizes(session))
        for session in clients
    )


def database_overheads(keyspace: Keyspace) -> dict[bytes, dict[bytes, int]]:
    """Return the bytes of overhead, by kind, of each database that has keys."""
    return {
        b"db.%d" % database.index: {
            b"overhead.hashtable.main": KEY_OVERHEAD_BYTES * len(database.values),
            b"overhead.hashtable.expires": KEY_TTL_OVERHEAD_BYTES * len(database.expiry_times),
            b"overhead.hashtable.slot-to-keys": 0,
        }
        for database in keyspace.databases
        if database.values
    }


def overhead_bytes(keyspace: Keyspace) -> int:
    """Return the overhead of all databases."""
    return sum(sum(sizes.values()) for sizes in database_overheads(keyspace).values())


def memory_stats(call: Call) -> dict[bytes, Any]:
    """Return the fields of MEMORY STATS: bytes, percentages and ratios, by Redis's names."""
    known: dict[str, Any] = dict(call.server.info("memory"))
    used = call.keyspace.memory.total
    peak = max(used, known.get("used_memory_peak", 0))
    resident, startup = known.get("used_memory_rss", used), known.get("used_memory_rss_startup", 0)
    for_data = max(resident - startup, 0)
    clients = all_client_buffer_bytes(call)
    keys = sum(len(database.values) for database in call.keyspace.databases)
    overhead = overhead_bytes(call.keyspace) + call.keyspace.client_memory.total
    data = used - overhead
    return {
        b"peak.allocated": peak,
        b"total.allocated": used,
        b"startup.allocated": startup,
        b"replication.backlog": 0,
        b"clients.slaves": 0,
        b"clients.normal": clients,
        b"cluster.links": 0,
        b"aof.buffer": 0,
        b"lua.caches": call.engine.scripts.text_bytes,
        b"functions.caches": sum(map(len, call.keyspace.libraries.values())),
        **database_overheads(call.keyspace),
        b"overhead.total": overhead,
        b"keys.count": keys,
        b"keys.bytes-per-key": used // keys if keys else 0,
        b"dataset.bytes": data,
        b"dataset.percentage": 100 * data / max(used, 1),
        b"peak.percentage": 100 * used / max(peak, 1),
        b"allocator.allocated": used,
        b"allocator.active": used,
        b"allocator.resident": resident,
        b"allocator-fragmentation.ratio": 1.0,
        b"allocator-fragmentation.bytes": 0,
        b"allocator-rss.ratio": resident_ratio(resident, used),
        b"allocator-rss.bytes": resident - used,
        b"rss-overhead.ratio": 1.0,
        b"rss-overhead.bytes": 0,
        b"fragmentation": resident_ratio(for_data, used),
        b"fragmentation.bytes": for_data - used,
    }


def resident_ratio(resident: int, used: int) -> float:
    """Return the ratio of resident to used memory."""
    return resident / used if used else 1.0


def run_stats(call: Call) -> None:
    """MEMORY STATS: reply with the fields."""
    call.reply.value(memory_stats(call))


def run_malloc_stats(call: Call) -> None:
    """MEMORY MALLOC-STATS: reply with the figures of MEMORY STATS as text. The allocators count nothing."""
    lines = ["Allocator: that of the C library and Python's own, which keep no statistics. Known figures:"]
    for name, value in memory_stats(call).items():
        if not isinstance(value, dict):
            lines.append(
                f"{name.decode()}: {value:g}" if isinstance(value, float) else f"{name.decode()}: {value}"
            )
    call.reply.verbatim("\n".join(lines).encode() + b"\n")


def run_doctor(call: Call) -> None:
    """MEMORY DOCTOR: reply with a report in words."""
    found = memory_stats(call)
    used, peak = found[b"total.allocated"], found[b"peak.allocated"]
    clients, fragmentation = found[b"clients.normal"], found[b"fragmentation"]
    advice: list[str] = []
    limit = dict(call.server.info("memory")).get("maxmemory", 0)
    if isinstance(limit, int) and limit and used > NEARLY_FULL_RATIO * limit:
        advice.append(f"- {used} bytes of maxmemory ({limit} bytes) are used.")
    elif used < DOCTOR_USED_BYTES_MIN:
        advice.append("Too little memory is used for a report.")
    else:
        if peak > HIGH_PEAK_RATIO * used:
            advice.append(f"- It once held {peak} bytes, now {used}: the rest may not be free yet.")
        if fragmentation > HIGH_RESIDENT_RATIO:
            advice.append(f"- {fragmentation:.2f} times the used memory is resident: it is fragmented.")
        if clients > HIGH_CLIENT_BYTES_MEAN * max(len(call.engine.clients), 1):
            advice.append(f"- Clients' buffers hold {clients} bytes: CLIENT LIST shows which.")
    call.reply.verbatim("\n".join(advice or ["No problems found."]).encode() + b"\n")
