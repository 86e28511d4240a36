"""The interface of the server for commands: configuration, users, persistence, statistics, shutdown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cached_property

import cython

from headrace.commands.arguments import parse_i64
from headrace.commands.replication_interface import ReplicationInterface
from headrace.commands.session import Session
from headrace.errors import CommandError, NotAnInteger, to_text
from headrace.keyspace import events
from headrace.keyspace.glob import matching_names
from headrace.keyspace.settings import Settings
from headrace.persistence.rdb import versions
from headrace.persistence.rdb.versions import RdbVersion
from headrace.version import __version__

InfoFields = list[tuple[str, object]]

# Name: field of Settings, minimum and maximum.
STREAM_SETTINGS: dict[bytes, tuple[str, int, int]] = {
    b"busy-reply-threshold": ("busy_reply_threshold", 0, 2**63 - 1),
    b"stream-idmp-duration": ("stream_idmp_duration", 1, 86400),
    b"stream-idmp-maxsize": ("stream_idmp_maxsize", 1, 10000),
    b"stream-node-max-bytes": ("stream_node_max_bytes", 0, 2**63 - 1),
    b"stream-node-max-entries": ("stream_node_max_entries", 0, 2**63 - 1),
}


class NoDataDirectory(CommandError):
    text = "ERR nothing can be saved: this keyspace has no data directory, it lives in memory only"


class NoAclFile(CommandError):
    text = (
        "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the "
        "ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file "
        "set) in order to store users in the Redis configuration."
    )


class ServerInterface:
    """The server as commands see it. This base class is the in-process server: few settings, no files."""

    version: str = __version__
    redis_version: str = (
        "8.10.0"  # the Redis version whose streams these are; clients decide by it what to send
    )

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings if settings is not None else Settings()

    @cached_property
    def replication(self) -> ReplicationInterface:
        """The replication of the server; this base class has none."""
        return ReplicationInterface()

    def config_get(self, patterns: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Return the settings whose names match one of the glob patterns, each once."""
        directives = self.directives()
        return [(name, directives[name]) for name in matching_names(patterns, list(directives))]

    def directives(self) -> dict[bytes, bytes]:
        """Return all settings by lower-case name, as CONFIG GET shows them."""
        return {
            b"appendonly": b"no",
            b"busy-reply-threshold": b"%d" % self.settings.busy_reply_threshold,
            b"databases": b"%d" % self.settings.databases,
            b"maxmemory": b"0",
            b"maxmemory-policy": b"noeviction",
            b"notify-keyspace-events": events.format_classes(self.settings.notify_keyspace_events).encode(),
            b"proto-max-bulk-len": b"536870912",
            b"save": b"",
            b"stream-idmp-duration": b"%d" % self.settings.stream_idmp_duration,
            b"stream-idmp-maxsize": b"%d" % self.settings.stream_idmp_maxsize,
            b"stream-node-max-bytes": b"%d" % self.settings.stream_node_max_bytes,
            b"stream-node-max-entries": b"%d" % self.settings.stream_node_max_entries,
            b"timeout": b"0",
        }

    def config_set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        """Apply all pairs or none. Raises CommandError with CONFIG SET's text."""
        known = self.directives()
        changes: list[Callable[[], None]] = []
        for name, value in pairs:
            lower = name.lower()
            shown = to_text(name)
            if lower not in known:
                raise CommandError(f"ERR Unknown option or number of arguments for CONFIG SET - '{shown}'")
            changes.append(self._prepare_change(lower, shown, value))
        for change in changes:
            change()

    def _prepare_change(self, name: bytes, shown: str, value: bytes) -> Callable[[], None]:
        """Return a function that applies the setting.

        Raises CommandError if the setting cannot be changed, or not to this value.
        """
        if name == b"notify-keyspace-events":
            return self._prepare_notification_change(shown, value)
        if name not in STREAM_SETTINGS:
            text = (
                f"ERR CONFIG SET failed (possibly related to argument '{shown}') - can't set immutable config"
            )
            raise CommandError(text)
        text = f"ERR CONFIG SET failed (possibly related to argument '{shown}')"
        try:
            number = parse_i64(value)
        except NotAnInteger:
            raise CommandError(f"{text} - argument couldn't be parsed into an integer") from None
        field, least, most = STREAM_SETTINGS[name]
        if not least <= number <= most:
            raise CommandError(f"{text} - argument must be between {least} and {most} inclusive")
        return lambda: setattr(self.settings, field, number)

    def _prepare_notification_change(self, shown: str, value: bytes) -> Callable[[], None]:
        """Return a function that sets notify-keyspace-events. Raises CommandError if the value is invalid."""
        try:
            bits = events.parse_classes(to_text(value))
        except ValueError as wrong:
            text = f"ERR CONFIG SET failed (possibly related to argument '{shown}') - {wrong}"
            raise CommandError(text) from None
        return lambda: setattr(self.settings, "notify_keyspace_events", bits)

    def config_resetstat(self) -> None:
        """Set the server's own counters to zero."""

    def config_rewrite(self) -> None:
        """Write the settings to the configuration file. Raises CommandError if that fails."""
        raise CommandError("ERR The server is running without a config file")

    def info(self, section: str) -> InfoFields:
        """Return the server's fields for one section of INFO; they are shown after the engine's."""
        return []

    def query_buffer_sizes(self, session: Session) -> tuple[int, int]:
        """Return (bytes of requests received and not executed, free bytes in the read buffer)."""
        return 0, 0

    def shutdown(self, save: bool | None, now: bool = False, force: bool = False) -> None:
        """Stop the program.

        Args:
            save: take a snapshot before; None: as the configuration says.
            now: the option NOW was given, so the caller has not waited for replicas.
            force: stop also if the log or the snapshot cannot be written.

        Raises:
            CommandError: if that fails.
        """
        raise CommandError("ERR Errors trying to SHUTDOWN. Check logs.")

    # Users.

    def read_users(self) -> list[tuple[str, list[bytes]]]:
        """Return (file and line, words) of each user in the ACL file. Raises CommandError if that fails."""
        raise NoAclFile()

    def write_users(self, lines: list[bytes]) -> None:
        """Replace the ACL file, atomically. Raises CommandError if that fails."""
        raise NoAclFile()

    # Persistence: none here.

    def save(self, now_ms: int) -> None:
        """Write a snapshot; return when it is durable. Raises CommandError if that fails."""
        raise NoDataDirectory()

    def background_save(self, schedule: bool) -> bytes:
        """Start a snapshot; with `schedule`, after a running rewrite. Return the reply's text."""
        raise NoDataDirectory()

    def last_save_s(self) -> int:
        """Return the time of the last snapshot, in seconds since 1970."""
        return 0

    def rewrite_log(self) -> bytes:
        """Start a rewrite of the log, or schedule it after a running snapshot. Return the reply's text."""
        raise NoDataDirectory()

    def synced_log_offset(self) -> int:
        """Return the synced length of the log, as counted by engine.effects.log_offset; -1 without a log.

        A session's writes are synced when this exceeds its last_write_offset.
        """
        return -1

    def reload(self, now_ms: int, flush: bool, save: bool, merge: bool) -> None:
        """DEBUG RELOAD: take a snapshot if `save`, drop all keys if `flush`, load the snapshot.

        If a key exists already, it is replaced if `merge`; else that is an error.
        """
        raise NoDataDirectory()

    def reload_log(self, now_ms: int) -> None:
        """DEBUG LOADAOF: write and sync the log, drop all keys, replay the log."""
        raise NoDataDirectory()

    def serves_while_busy(self) -> bool:
        """Return whether other clients are served while a script runs, so that they can end it."""
        return False

    def serve_while_busy(self, session: Session) -> None:
        """Execute what other clients have sent; `session` runs a slow script."""

    def is_stopping(self) -> bool:
        """Return whether a shutdown was requested that has not been executed yet."""
        return False

    def purge_memory(self) -> None:
        """Return free memory to the system."""

    def on_flushall(self, now_ms: int) -> None:
        """Cancel a running snapshot: FLUSHALL has removed all keys."""

    def rdb_version(self) -> RdbVersion:
        """Return the RDB version in which values are written."""
        return versions.by_name("compatible")

    def rdb_compression(self) -> bool:
        """Return whether long strings are compressed in written values."""
        return True

    def random_bytes(self, n: int) -> bytes:
        """Return n unpredictable bytes."""
        return os.urandom(n)

    def sub_ms_microseconds(self) -> int:
        """Return the microseconds (0 to 999) that TIME adds to the engine's milliseconds."""
        return 0

    # For tests.

    def debug_allowed(self, session: Session) -> bool:
        """Return whether the session may use DEBUG."""
        return False

    def sleep(self, seconds: float) -> None:
        """Block the whole server for `seconds`."""
        time.sleep(seconds)
