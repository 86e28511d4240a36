"""The interface of the engine for commands: sessions, users, statistics, transactions, pauses.

These are protocols although each has one implementation: the engine imports the table of commands and checks
requests by its rows, so commands cannot import the engine. Objects from modules that do not import the engine
(users, logs, subscriptions, eviction) have their concrete types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import TYPE_CHECKING, Protocol

from headrace.access.log import AccessLog
from headrace.access.users import Users
from headrace.commands.connection.subscriptions import PubSub
from headrace.commands.connection.tracking_table import Tracking
from headrace.commands.scripts_interface import ScriptsInterface
from headrace.commands.server.latency_events import LatencyMonitor
from headrace.commands.server.slow_requests import SlowLog
from headrace.commands.session import Session
from headrace.commands.stats import CommandRow, Stats
from headrace.errors import CommandError
from headrace.keyspace.eviction import Eviction

if TYPE_CHECKING:
    from headrace.commands.call import Call


class AuthorizationInterface(Protocol):
    """Users and permissions: engine.authorization.Authorization."""

    users: Users
    acl_log: AccessLog

    def begin_session(self, session: Session) -> None:
        """Log in a new client as the default user; it must authenticate if that user needs a password."""

    def authenticate(
        self, session: Session, name: bytes, password: bytes, command: bytes, now_ms: int
    ) -> bool:
        """Log the session in and return True if the password is right; else log the denial, return False."""

    def refresh_sessions(self, caller: Session | None) -> None:
        """Apply changed users to all sessions.

        A session is closed if its user was deleted, or may no longer use a channel that it subscribes to.
        """

    def check_commands(self, session: Session, names: Iterable[bytes], key: bytes, now_ms: int) -> None:
        """Raise CommandError if the user may not run one of these commands on the key."""

    def check_key(self, session: Session, command: bytes, key: bytes, now_ms: int) -> None:
        """Raise CommandError if the user may not run the given write command on the key."""


class TimingInterface(Protocol):
    """Durations of requests: engine.timing.Timing."""

    @property
    def slow_log(self) -> SlowLog:
        """The slow requests."""

    @property
    def latency_monitor(self) -> LatencyMonitor:
        """The latency events."""

    def refresh(self) -> None:
        """Re-read the settings and the list of monitors."""

    def send_to_monitors(self, call: Call) -> None:
        """Send the request to all MONITOR clients, unless it is an admin command.

        Commands with the flag skip_monitor call this before they run others; the engine does for the rest.
        """


class WriteGateInterface(Protocol):
    """Decides which requests are rejected or paused now: engine.write_gate.WriteGate."""

    @property
    def eviction(self) -> Eviction:
        """The eviction of entries when memory is full."""

    @property
    def paused_sessions(self) -> Sized:
        """The sessions whose request waits for the end of a pause."""

    @property
    def may_reject(self) -> bool:
        """Whether some requests are rejected or paused."""

    def check_script(self, session: Session) -> None:
        """Raise CommandError if no script may run now."""

    def check_writing_script_start(self, session: Session, allow_oom: bool) -> None:
        """Raise CommandError if no script that declares writes may start now.

        allow_oom: permit the script although memory is full.
        """

    def check_script_write(self, session: Session, origin: str) -> None:
        """Raise CommandError if a script may not write now. origin: the script and the line that writes."""

    def pause(self, paused_until: int, writes_only: bool) -> None:
        """Pause requests until that time, in milliseconds since 1970."""

    def end_pause(self) -> None:
        """End the pause."""


class EngineInterface(Protocol):
    """The engine as commands see it: engine.engine.Engine."""

    @property
    def clients(self) -> dict[int, Session]:
        """All sessions by id, oldest first."""

    @property
    def pubsub(self) -> PubSub:
        """The subscriptions of all sessions."""

    @property
    def tracking(self) -> Tracking:
        """The keys that clients cache (CLIENT TRACKING)."""

    @property
    def scripts(self) -> ScriptsInterface:
        """The loaded scripts, and the one that runs."""

    @property
    def stats(self) -> Stats:
        """The counters."""

    @property
    def auth(self) -> AuthorizationInterface:
        """Users and permissions."""

    @property
    def timing(self) -> TimingInterface:
        """Durations of requests."""

    @property
    def write_gate(self) -> WriteGateInterface:
        """Decides which requests are rejected or paused now."""

    def run_transaction(self, session: Session, queue: list[tuple[CommandRow, list[bytes]]]) -> None:
        """Run the queued commands of an EXEC, and write one reply each."""

    def kill(self, session: Session) -> None:
        """Close another client's session."""

    def unblock(self, session: Session, error: CommandError | None = None) -> bool:
        """End the wait of a blocked session; return whether it was blocked. Paused requests stay paused.

        error: the reply; None sends the reply to a timeout.
        """

    def unwatch(self, session: Session) -> None:
        """Remove all watches of the session."""

    def set_active_expiry(self, on: bool) -> None:
        """Set whether tick() deletes expired keys. If off, an expired key is deleted only on access."""
