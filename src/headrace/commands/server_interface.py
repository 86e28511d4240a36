"""What commands ask of the program around the engine: configuration, figures, randomness, the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import cython

import headrace
from headrace.commands.arguments import parse_i64
from headrace.commands.session import Session
from headrace.errors import CommandError, NotAnInteger
from headrace.keyspace import events
from headrace.keyspace.glob import select
from headrace.keyspace.settings import Settings
from headrace.persistence.rdb import versions
from headrace.persistence.rdb.versions import Version

Section = list[tuple[str, object]]

# Name, field of Settings, least and greatest value.
STREAM_SETTINGS: dict[bytes, tuple[str, int, int]] = {
    b"stream-idmp-duration": ("stream_idmp_duration", 1, 86400),
    b"stream-idmp-maxsize": ("stream_idmp_maxsize", 1, 10000),
    b"stream-node-max-bytes": ("stream_node_max_bytes", 0, 2**63 - 1),
    b"stream-node-max-entries": ("stream_node_max_entries", 0, 2**63 - 1),
}


class NoDirectory(CommandError):
    text = "ERR nothing can be saved: this keyspace has no data directory, it lives in memory only"


class NoAclFile(CommandError):
    text = (
        "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the "
        "ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file "
        "set) in order to store users in the Redis configuration."
    )


class ServerInterface:
    """The in-process host: a few settings, no files, no process to stop. The server's derives from it."""

    version: str = headrace.__version__
    redis_version: str = "8.0.0"  # the Redis whose commands and replies clients may expect

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings if settings is not None else Settings()

    def config_get(self, patterns: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Every setting whose name matches one of the glob patterns, each once."""
        directives = self.directives()
        return [(name, directives[name]) for name in select(patterns, list(directives))]

    def directives(self) -> dict[bytes, bytes]:
        """All settings by lower-case name, as CONFIG GET shows them."""
        return {
            b"appendonly": b"no",
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
        """Apply all pairs or none; raises CommandError with CONFIG SET's text."""
        known = self.directives()
        changes: list[Callable[[], None]] = []
        for name, value in pairs:
            lower = name.lower()
            shown = name.decode("utf-8", "surrogateescape")
            if lower not in known:
                raise CommandError(f"ERR Unknown option or number of arguments for CONFIG SET - '{shown}'")
            changes.append(self._change(lower, shown, value))
        for change in changes:
            change()

    def _change(self, name: bytes, shown: str, value: bytes) -> Callable[[], None]:
        """What setting name to value will do; the settings of this host are streams' and events."""
        if name == b"notify-keyspace-events":
            return self._change_events(shown, value)
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

    def _change_events(self, shown: str, value: bytes) -> Callable[[], None]:
        """What setting notify-keyspace-events to value will do."""
        try:
            bits = events.parse_classes(value.decode("utf-8", "surrogateescape"))
        except ValueError as wrong:
            text = f"ERR CONFIG SET failed (possibly related to argument '{shown}') - {wrong}"
            raise CommandError(text) from None
        return lambda: setattr(self.settings, "notify_keyspace_events", bits)

    def config_resetstat(self) -> None:
        """Set the host's own counters to zero."""

    def config_rewrite(self) -> None:
        """Write the settings back to the configuration file."""
        raise CommandError("ERR The server is running without a config file")

    def info(self, section: str) -> Section:
        """What the host knows for one section of INFO, by Redis's field names; it goes after the engine's."""
        return []

    def client_buffers(self, session: Session) -> tuple[int, int]:
        """Bytes of the session's requests that have come and not been served, and bytes free for more."""
        return 0, 0

    def shutdown(self, save: bool | None, now: bool = False, force: bool = False) -> None:
        """Stop the program; save: SAVE is True, NOSAVE False, neither None. CommandError if it cannot."""
        raise CommandError("ERR Errors trying to SHUTDOWN. Check logs.")

    # Users.

    def read_users(self) -> list[tuple[str, list[bytes]]]:
        """The file of users: where each line stands, and its words. CommandError when it cannot be read."""
        raise NoAclFile()

    def write_users(self, lines: list[bytes]) -> None:
        """Write the file of users anew, whole or not at all; CommandError when that failed."""
        raise NoAclFile()

    # What is kept on disk: nothing here.

    def save(self, now_ms: int) -> None:
        """SAVE: write a snapshot, and return when it is durable; CommandError when that failed."""
        raise NoDirectory()

    def background_save(self, schedule: bool) -> bytes:
        """BGSAVE: begin a snapshot, or with schedule let one follow a rewrite that runs; what to answer."""
        raise NoDirectory()

    def last_save_s(self) -> int:
        """When the last snapshot was taken, in seconds since 1970."""
        return 0

    def rewrite_log(self) -> bytes:
        """BGREWRITEAOF: begin to write the log anew, or let that follow a snapshot; what to answer."""
        raise NoDirectory()

    def log_synced(self) -> int:
        """How much of the log is synced, measured as engine.effects.offset is; -1 when there is no log.

        It is the length after some commit: a session's writes are synced when it is more than its `written`.
        """
        return -1

    def reload(self, call: Any, flush: bool, save: bool, merge: bool) -> None:
        """DEBUG RELOAD: take a snapshot if `save`, drop all keys if `flush`, and load the snapshot.

        Where a key is there already the snapshot's takes its place if `merge`, else it is an error.
        """
        raise NoDirectory()

    def reload_log(self, call: Any) -> None:
        """DEBUG LOADAOF: write and sync the log, drop all keys, and replay it."""
        raise NoDirectory()

    def purge_memory(self) -> None:
        """Memory that is free is to go back to the system."""

    def flushed_all(self, now_ms: int) -> None:
        """FLUSHALL has taken all keys away: a snapshot that is being written is worth nothing now."""

    def rdb_version(self) -> Version:
        """In which version of the format values are written."""
        return versions.by_name("compatible")

    def rdb_compression(self) -> bool:
        """Whether long strings are compressed there."""
        return True

    def random_bytes(self, n: int) -> bytes:
        """n unpredictable bytes."""
        return os.urandom(n)

    def microseconds(self) -> int:
        """What TIME answers beyond the engine's milliseconds: 0 to 999 microseconds."""
        return 0

    # For tests.

    def debug_allowed(self, session: Session) -> bool:
        """Whether the session may use DEBUG."""
        return False

    def sleep(self, seconds: float) -> None:
        """Do nothing, and let nobody else, for a while."""
        time.sleep(seconds)
