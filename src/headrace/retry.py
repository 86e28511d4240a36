"""How long a lost server is waited for: restarts take seconds, failovers as long as it takes to be sure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import redis
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    RedisClusterException,
    TryAgainError,
)

FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 2.0
LOST = (
    redis.ConnectionError,
    redis.TimeoutError,
    OSError,
    ClusterError,  # CLUSTERDOWN among them
    TryAgainError,
    RedisClusterException,  # no node of a cluster answers, or a slot is nobody's for now
)
HOPELESS = (AuthenticationError, AuthorizationError)

T = TypeVar("T")
log = logging.getLogger(__name__)


class Patience:
    """Waits between attempts, doubling them, until so many seconds have passed without any success."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Something was achieved: what fails from now on may fail anew."""
        self._until: float | None = None
        self._pause = FIRST_WAIT_S

    def wait(self, failure: Exception) -> None:
        """Sleep before the next attempt, or raise the failure if it is hopeless or time is over."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        elif self._pause == 2 * FIRST_WAIT_S:  # the first attempt is the usual cure, and not worth a word
            log.warning("Lost a server, trying for %g s to find it again: %s", self._seconds, failure)
        if now >= self._until or isinstance(failure, HOPELESS):
            raise failure
        time.sleep(min(self._pause, self._until - now))
        self._pause = min(2 * self._pause, LONGEST_WAIT_S)


def patiently(seconds: float, work: Callable[[], T]) -> T:
    """What work returns; it is done again when a server was lost, so it must do no harm done twice."""
    patience = Patience(seconds)
    while True:
        try:
            return work()
        except LOST as failure:
            patience.wait(failure)
