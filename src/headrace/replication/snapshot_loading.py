"""Load the snapshot of a primary into a keyspace of its own, which then replaces the data."""

from __future__ import annotations

from collections.abc import Callable

from headrace.keyspace.cold_storage import ColdStorage
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import Settings
from headrace.persistence.rdb.reader import ByteReader, LoadedSnapshot, read_rdb

STREAM_DATABASE_FIELD = b"repl-stream-db"
REDIS_VERSION_FIELD = b"redis-ver"
VALKEY_VERSION_FIELD = b"valkey-ver"
DATABASE_DIGITS_MAX = 10


def load_snapshot(
    source: ByteReader,
    settings: Settings,
    *,
    now_ms: int,
    skip_foreign_types: bool,
    advice: str,
    progress: Callable[[int], None],
    cold: ColdStorage | None = None,
) -> tuple[Keyspace, LoadedSnapshot]:
    """Return the data of a snapshot, and its other contents, such as auxiliary fields.

    Args:
        settings: the settings of the keyspace whose data will be replaced.
        now_ms: Unix milliseconds. Expired keys stay: only the primary deletes them.
        skip_foreign_types: skip and count keys of types that Headrace does not have.
        advice: what to set; appended to the error about keys of other types.
        cold: the cold storage of that keyspace; it takes the entries that exceed the memory limit. None if
            the keyspace has none.
        progress: called about every MiB with the number of bytes read so far.

    Raises:
        Damaged: if the snapshot is damaged, or has keys of other types and they are not skipped.
    """
    keyspace = Keyspace(settings_for_loading(settings))
    if cold is not None:
        keyspace.cold_storage = cold.copy_for_loading(keyspace)
    try:
        loaded = read_rdb(
            source,
            keyspace,
            now_ms=now_ms,
            keep_expired=True,
            skip_foreign_types=skip_foreign_types,
            foreign_advice=advice,
            progress=progress,
        )
    except BaseException:
        keyspace.close()
        raise
    return keyspace, loaded


def is_of_redis_7(loaded: LoadedSnapshot) -> bool:
    """Return whether Redis 7 wrote the snapshot."""
    return loaded.aux.get(REDIS_VERSION_FIELD, b"").startswith(b"7.")


def is_of_redis_8(loaded: LoadedSnapshot) -> bool:
    """Return whether Redis 8 or later, and not Valkey, wrote the snapshot."""
    major = loaded.aux.get(REDIS_VERSION_FIELD, b"").split(b".")[0]
    return VALKEY_VERSION_FIELD not in loaded.aux and major.isdigit() and int(major) >= 8


def is_of_headrace(loaded: LoadedSnapshot) -> bool:
    """Return whether Headrace wrote the snapshot: it names no version of another server."""
    return REDIS_VERSION_FIELD not in loaded.aux and VALKEY_VERSION_FIELD not in loaded.aux


def selected_database(loaded: LoadedSnapshot) -> int:
    """Return the database that the stream after the snapshot begins in."""
    text = loaded.aux.get(STREAM_DATABASE_FIELD, b"0")
    return int(text) if text.isdigit() and len(text) <= DATABASE_DIGITS_MAX else 0


def settings_for_loading(settings: Settings) -> Settings:
    """Return new settings for the keyspace that a snapshot is loaded into, because read_rdb() changes them.

    They have only the settings that loading depends on.
    """
    made = Settings()
    made.databases = settings.databases
    made.stream_idmp_duration = settings.stream_idmp_duration
    made.stream_idmp_maxsize = settings.stream_idmp_maxsize
    made.stream_node_max_bytes = settings.stream_node_max_bytes
    made.stream_node_max_entries = settings.stream_node_max_entries
    return made
