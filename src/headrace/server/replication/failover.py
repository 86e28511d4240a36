"""FAILOVER: this primary hands its role to a replica, without losing a write.

waiting-for-sync       writes pause until the replica has everything
failover-in-progress   a replica is asked to take over (PSYNC id offset FAILOVER), and this server follows it
no-failover            the replica has taken over, or this server is the primary again
"""

from __future__ import annotations

import logging
from typing import Protocol

from headrace.engine.engine import Engine
from headrace.engine.write_gate import FAILOVER_PAUSE
from headrace.errors import CommandError
from headrace.replication.primary import Primary, Replica
from headrace.server.config.log_levels import NOTICE
from headrace.server.replication.primary_side import PrimarySide, address_of

LOG = logging.getLogger("headrace")
NONE, WAITING, IN_PROGRESS = "no-failover", "waiting-for-sync", "failover-in-progress"
PAUSE_FOREVER_MS = 1 << 52  # until the failover ends it
POLL_MS = 20


class FailoverRejectedOnReplica(CommandError):
    text = "ERR FAILOVER is not valid when server is a replica."


class NoReplicas(CommandError):
    text = "ERR FAILOVER requires connected replicas."


class AlreadyRunning(CommandError):
    text = "ERR FAILOVER already in progress."


class NotRunning(CommandError):
    text = "ERR No failover in progress."


class ForceWithoutTarget(CommandError):
    text = "ERR FAILOVER with force option requires both a timeout and target HOST and IP."


class NoSuchReplica(CommandError):
    text = "ERR FAILOVER target HOST and PORT is not a replica."


class NotOnline(CommandError):
    text = "ERR FAILOVER target replica is not online."


class RoleSwitcher(Protocol):
    """What a failover needs of the server's replication."""

    primary: Primary

    def is_replica(self) -> bool:
        """Return whether this server is a replica."""

    def hand_over(self, host: str, port: int) -> None:
        """Follow the replica at host:port, and ask it to take over."""

    def promote(self) -> None:
        """Become a primary again."""


class Failover:
    """Runs FAILOVER, one at a time."""

    def __init__(self, engine: Engine, replicas: PrimarySide, takeover: RoleSwitcher) -> None:
        self.engine = engine
        self.primary_side = replicas
        self.role_switcher = takeover
        self.state = NONE
        self._target: tuple[str, int] | None = None
        self._force = False
        self._deadline_ms = 0

    def start(self, host: str | None, port: int, force: bool, timeout_ms: int) -> None:
        """Start a failover. Raises CommandError if that is not possible.

        Args:
            host: the host of the replica that takes over; None: any replica.
            force: hand over when the timeout is over, even to a replica that lacks data.
            timeout_ms: how long to wait for a replica to have everything; 0: without a limit.
        """
        if self.state != NONE:
            raise AlreadyRunning()
        if self.role_switcher.is_replica():
            raise FailoverRejectedOnReplica()
        if not self.primary_side.primary.replicas:
            raise NoReplicas()
        if force and (host is None or not timeout_ms):
            raise ForceWithoutTarget()
        self._target = None
        if host is not None:
            self._target = (host, port)
            if not (found := self._candidates(online=False)):
                raise NoSuchReplica()
            if not found[0].is_online:
                raise NotOnline()
        self._force = force
        self._deadline_ms = self.engine.keyspace.now + timeout_ms if timeout_ms else 0
        self.state = WAITING
        self.primary_side.sends_pings = False  # the offset must stand still
        self.engine.write_gate.pause(PAUSE_FOREVER_MS, True, FAILOVER_PAUSE)
        self.primary_side.request_acknowledgements()
        self.primary_side.loop.run_timer_now()

    def _candidates(self, online: bool = True) -> list[Replica]:
        """Return the replicas that may take over."""
        return [
            replica
            for replica in self.primary_side.primary.replicas
            if (self._target is None or self._target == (replica.host, replica.port))
            and (replica.is_online or not online)
        ]

    def tick(self, now: int) -> int:
        """Hand over if a replica has everything; give up after the timeout.

        Returns in how many milliseconds to call it again, -1 if it is not waiting.
        """
        if self.state != WAITING:
            return -1
        primary = self.primary_side.primary
        self.primary_side.feed_now()
        late = 0 < self._deadline_ms <= now
        ready = [
            replica for replica in self._candidates() if replica.acknowledged_offset >= primary.end_offset
        ]
        if not ready and late and self._force:
            ready = self._candidates()
        if ready:
            self.state = IN_PROGRESS
            LOG.log(NOTICE, "FAILOVER: %s takes over", address_of(ready[0]))
            self.role_switcher.hand_over(ready[0].host, ready[0].port)
        elif late:
            LOG.warning("FAILOVER: no replica had all data in time")
            self.end()
        else:  # not another GETACK: it would move the offset, and replicas acknowledge each second anyway
            return POLL_MS
        return -1

    def on_success(self) -> None:
        """End the failover: the other server has taken over. Does nothing if none is in progress."""
        if self.state == IN_PROGRESS:
            LOG.log(NOTICE, "FAILOVER: done")
            self.end()

    def on_link_lost(self, reason: str, may_have_taken_over: bool) -> None:
        """End the failover: the link to the other server was lost. Does nothing if none is in progress.

        Become the primary again, unless the other server may have taken over: two primaries would diverge.
        """
        if self.state != IN_PROGRESS:
            return
        if may_have_taken_over:
            LOG.error(
                "FAILOVER: %s; if the other server has not taken over, use REPLICAOF NO ONE here", reason
            )
        else:
            LOG.error("FAILOVER: %s; this server is the primary again", reason)
            self.role_switcher.promote()
        self.end()

    def abort(self) -> None:
        """Abort the failover. Raises CommandError if there is none."""
        if self.state == NONE:
            raise NotRunning()
        if self.state == IN_PROGRESS:
            self.role_switcher.promote()
        LOG.warning("FAILOVER: aborted")
        self.end()

    def end(self) -> None:
        """Reset the state, and let paused writes continue, here or at the new primary."""
        self.state = NONE
        self.primary_side.sends_pings = True
        self.engine.write_gate.end_pause(FAILOVER_PAUSE)
