"""The interface of replication for commands; the default is for a database in a program, without replicas.

    primary   ── stream of effects, each byte counted: the offset ──▶   replicas
              ◀── REPLCONF ACK: the offset that a replica has applied ──

An offset is a number of bytes of that stream. A history is named by 40 hexadecimal digits, the replication
ID: within one history an offset identifies the state of the data.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.commands.session import Session
from headrace.errors import CommandError

InfoFields = list[tuple[str, object]]

NO_REPLICATION_ID = "0" * 40


class NoReplication(CommandError):
    text = "ERR this database has no replication: it lives in a program"


class NotShuttingDown(CommandError):
    text = "ERR No shutdown in progress."


class ReplicationInterface:
    """Replication, as commands see it. A server sets ServerInterface.replication to its own.

    This base class is for a database without a server: a primary without replicas.
    """

    def role_reply(self) -> list[object]:
        """Return ROLE's reply."""
        return [b"master", 0, []]

    def info(self) -> InfoFields:
        """Return the fields of INFO replication."""
        return [
            ("role", "master"),
            ("connected_slaves", 0),
            ("master_failover_state", "no-failover"),
            ("master_replid", NO_REPLICATION_ID),
            ("master_replid2", NO_REPLICATION_ID),
            ("master_repl_offset", 0),
            ("second_repl_offset", -1),
            ("repl_backlog_active", 0),
            ("repl_backlog_size", 1 << 20),
            ("repl_backlog_first_byte_offset", 0),
            ("repl_backlog_histlen", 0),
        ]

    def info_stats_fields(self) -> InfoFields:
        """Return the fields that replication adds to INFO stats."""
        return [("sync_full", 0), ("sync_partial_ok", 0), ("sync_partial_err", 0)]

    def publish_to_replicas(self, words: list[bytes]) -> None:
        """Send a PUBLISH or SPUBLISH to the replicas, whose subscribers get the message, too."""

    # The role.

    def is_replica(self) -> bool:
        """Return whether this server is a replica."""
        return False

    def follow(self, host: str, port: int, caller: Session) -> bytes:
        """Become a replica of that server; return the reply's text. Blocked clients are closed."""
        raise NoReplication()

    def promote(self) -> None:
        """Become a primary; no-op if it is one. Replicas continue with partial resynchronisation."""

    def close_link(self) -> None:
        """Close this replica's link to its primary; it connects again."""

    # A replica that is connected to this server.

    def replication_dialect(self, session: Session) -> str:
        """Return the stream's dialect (replication/stream_dialect.py); empty if none was requested."""
        return ""

    def set_replconf_option(self, session: Session, option: bytes, value: bytes) -> None:
        """Store one option that a replica announces by REPLCONF; `option` is in lower case.

        Options: listening-port, ip-address, capa, rdb-only, rdb-filter-only, version, headrace-translation.
        The caller handles ACK and GETACK. Raises CommandError if the option is unknown or its value invalid.
        """
        raise NoReplication()

    def on_acknowledgement(self, session: Session, offset: int, synced: int) -> None:
        """Store that the replica has applied the stream up to `offset`, and synced its log up to `synced`.

        `synced` is -1 if it was not reported. Ignored for a session that is no replica.
        """

    def synchronise(self, session: Session, history: bytes, offset: int, *, legacy: bool = False) -> None:
        """Make the session a replica (PSYNC, or SYNC if legacy); the server writes the reply itself.

        Args:
            history: the replication ID that the replica knows; b"?" for none.
            offset: the offset of the next byte that the replica needs; -1 for none.

        Raises:
            CommandError: if the request cannot be served now; for example NOMASTERLINK.
        """
        raise NoReplication()

    # Waiting for replicas.

    def written_offset(self) -> int:
        """Return the offset after all effects recorded so far."""
        return 0

    def count_acknowledged_replicas(self, offset: int) -> int:
        """Return how many online replicas have applied the stream up to the offset."""
        return 0

    def count_synced_replicas(self, offset: int) -> int:
        """Return how many online replicas have synced their log up to the offset."""
        return 0

    def request_acknowledgements(self) -> None:
        """Ask all replicas once, after this turn, to acknowledge now."""

    # Shutdown.

    def delay_shutdown(self, finish: Callable[[], None], session: Session | None) -> bool:
        """Call finish() when the replicas have all effects; return False if there is nothing to wait for.

        session: the client that waits for the shutdown.
        """
        return False

    def abort_shutdown(self) -> None:
        """Abort a shutdown that waits for replicas. Raises CommandError if there is none."""
        raise NotShuttingDown()

    # Failover.

    def fail_over(self, host: str | None, port: int, force: bool, timeout_ms: int) -> None:
        """Start FAILOVER: hand the role of primary to that replica, or to any if host is None.

        force: at the timeout, fail over even if the replica lacks data. timeout_ms: 0 for no timeout.
        """
        raise NoReplication()

    def abort_failover(self) -> None:
        """Abort a running FAILOVER. Raises CommandError if there is none."""
        raise CommandError("ERR No failover in progress.")
