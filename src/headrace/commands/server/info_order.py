"""The order of INFO's fields: that of Redis 8.2. Fields that only Headrace has follow related ones.

Some clients and exporters read INFO by position, or compare it line by line.
"""

from __future__ import annotations

_ORDER = {
    "server": """
        redis_version redis_git_sha1 redis_git_dirty redis_build_id headrace_version redis_mode os arch_bits
        python_version monotonic_clock multiplexing_api process_id process_supervised run_id tcp_port
        server_time_usec uptime_in_seconds uptime_in_days hz configured_hz lru_clock executable config_file
        io_threads_active listener
    """,
    "clients": """
        connected_clients cluster_connections maxclients client_recent_max_input_buffer
        client_recent_max_output_buffer blocked_clients tracking_clients pubsub_clients watching_clients
        clients_in_timeout_table total_watched_keys total_blocking_keys total_blocking_keys_on_nokey
    """,
    "memory": """
        used_memory used_memory_human used_memory_rss used_memory_rss_human used_memory_rss_startup
        used_memory_peak used_memory_peak_human used_memory_peak_time used_memory_peak_perc
        used_memory_overhead used_memory_startup used_memory_dataset used_memory_dataset_perc
        allocator_allocated allocator_active allocator_resident allocator_muzzy total_system_memory
        total_system_memory_human used_memory_lua used_memory_vm_eval used_memory_lua_human
        used_memory_scripts_eval number_of_cached_scripts number_of_functions number_of_libraries
        used_memory_vm_functions used_memory_vm_total used_memory_vm_total_human used_memory_functions
        used_memory_scripts used_memory_scripts_human maxmemory maxmemory_human maxmemory_policy
        allocator_frag_ratio allocator_frag_bytes allocator_rss_ratio allocator_rss_bytes rss_overhead_ratio
        rss_overhead_bytes mem_fragmentation_ratio mem_fragmentation_bytes mem_not_counted_for_evict
        mem_replication_backlog mem_total_replication_buffers mem_replica_full_sync_buffer
        mem_clients_slaves mem_clients_normal mem_cluster_links mem_aof_buffer mem_allocator
        mem_overhead_db_hashtable_rehashing active_defrag_running lazyfree_pending_objects lazyfreed_objects
    """,
    "persistence": """
        loading async_loading current_cow_peak current_cow_size current_cow_size_age current_fork_perc
        current_save_keys_processed current_save_keys_total rdb_changes_since_last_save
        rdb_bgsave_in_progress rdb_last_save_time rdb_last_bgsave_status rdb_last_bgsave_time_sec
        rdb_current_bgsave_time_sec rdb_saves rdb_last_cow_size rdb_last_load_keys_expired
        rdb_last_load_keys_loaded aof_enabled aof_rewrite_in_progress aof_rewrite_scheduled
        aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status aof_rewrites
        aof_rewrites_consecutive_failures aof_last_write_status aof_last_cow_size module_fork_in_progress
        module_fork_last_cow_size aof_current_size aof_base_size aof_pending_rewrite aof_buffer_length
        aof_pending_bio_fsync aof_delayed_fsync
    """,
    "stats": """
        total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes
        total_net_output_bytes instantaneous_input_kbps instantaneous_output_kbps rejected_connections
        sync_full sync_partial_ok sync_partial_err expired_subkeys expired_keys expired_stale_perc
        expired_time_cap_reached_count evicted_keys evicted_entries evicted_clients evicted_scripts
        keyspace_hits keyspace_misses pubsub_channels pubsub_patterns pubsubshard_channels latest_fork_usec
        total_forks migrate_cached_sockets slave_expires_tracked_keys active_defrag_hits
        active_defrag_misses active_defrag_key_hits active_defrag_key_misses total_active_defrag_time
        current_active_defrag_time tracking_total_keys tracking_total_items tracking_total_prefixes
        unexpected_error_replies total_error_replies dump_payload_sanitizations io_threaded_reads_processed
        io_threaded_writes_processed io_threaded_total_prefetch_batches io_threaded_total_prefetch_entries
        client_query_buffer_limit_disconnections
        client_output_buffer_limit_disconnections acl_access_denied_auth acl_access_denied_cmd
        acl_access_denied_key acl_access_denied_channel acl_access_denied_tls_cert
    """,
}
FIELD_RANKS = {
    section: {name: rank for rank, name in enumerate(text.split())} for section, text in _ORDER.items()
}
DIGITS = "0123456789"


def sort_fields(section: str, fields: dict[str, object]) -> dict[str, object]:
    """Return the fields of a section in Redis's order; unchanged if FIELD_RANKS lacks the section.

    A numbered field (db0) is sorted as its name without the number. Unknown fields come last.
    """
    ranks = FIELD_RANKS.get(section)
    if ranks is None:
        return fields

    def rank(name: str) -> int:
        return ranks.get(name, ranks.get(name.rstrip(DIGITS), len(ranks)))

    return dict(sorted(fields.items(), key=lambda field: rank(field[0])))
