"""Retry when a server is lost: which requests, and for how long. All clients of servers use these rules.

    not sent yet          no connection could be made      retried, whatever the request
    sent, no reply        it may have been executed        retried if it is repeatable, else an error
    redirected, not now   MOVED, READONLY, LOADING ...     not executed: retried at the named server, or later
    wrong password        AUTH_ERRORS                      never retried

These are repeatable: reads (servers.py sends only reads); removals and acknowledgements, whose count may then
be too small; settings, and renewals of leases; and XADD with an idempotent ID, if its caller says that it has
one. For all others the caller gets the error (api/remote_backend.py: ConnectionLost), because only the caller
knows what to do: an entry that is added again may be there twice, and a group read that is repeated skips the
entries of the lost reply.

A restart takes seconds. A failover takes as long as the other servers need to agree on it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.client.connection_errors import (
    AUTH_ERRORS,
    CONNECTION_ERRORS,
    UNAVAILABLE_ERRORS,
    ServerUnavailable,
    error_reply_text,
)

INITIAL_DELAY_S = 0.05
MAX_DELAY_S = 2.0

READ_COMMANDS = frozenset(
    b"XRANGE XREVRANGE XARROW XLEN XREAD XINFO XPENDING"
    b" PING TIME EXISTS TYPE TTL PTTL GET MGET SCAN INFO".split()
)
IDEMPOTENT_WRITES = frozenset(
    b"XACK XACKDEL XDEL XDELEX XTRIM XGROUP XSETID XCFGSET DEL UNLINK EXPIRE".split()
)

T = TypeVar("T")
log = logging.getLogger(__name__)


class ReconnectDelay:
    """Waits between attempts to reach a server: each wait is twice as long as the one before.

    Args:
        seconds: how long to retry after the last success.
        report: called with the error when the first retry has failed, too; the default logs a warning.

    Attributes:
        reported: whether `report` was called since the last success.
    """

    def __init__(self, seconds: float, report: Callable[[Exception], object] | None = None) -> None:
        self._seconds = seconds
        self._report = report
        self.reset()

    def reset(self) -> None:
        """Record a success: the next failure starts with the shortest delay and the full time again."""
        self._deadline: float | None = None
        self._delay = INITIAL_DELAY_S
        self.reported = False

    def wait_or_raise(self, failure: Exception) -> None:
        """Sleep before the next attempt.

        Args:
            failure: what the last attempt raised.

        Raises:
            Exception: `failure`, if retrying cannot help or the time is over.
        """
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds
        elif not self.reported:  # the first retry usually succeeds and is not worth a log line
            self.reported = True
            (self._report or self._log)(failure)
        if now >= self._deadline or isinstance(failure, AUTH_ERRORS):
            try:
                raise failure
            finally:
                del failure  # its traceback has this frame: together they would be a reference cycle
        time.sleep(min(self._delay, self._deadline - now))
        self._delay = min(2 * self._delay, MAX_DELAY_S)

    def _log(self, failure: Exception) -> None:
        replied = isinstance(failure, (ServerUnavailable, *UNAVAILABLE_ERRORS))
        what = "A server cannot execute a request now" if replied else "Lost a server"
        log.warning("%s, retrying for %g s: %s", what, self._seconds, error_reply_text(failure))


def is_repeatable(words: Sequence[bytes]) -> bool:
    """Return whether a request may be executed twice without harm."""
    name = words[0].upper()
    if name == b"XCLAIM":  # with an idle time of 0, and without counting a delivery
        return b"JUSTID" in words and words[4] == b"0"
    return name in READ_COMMANDS or name in IDEMPOTENT_WRITES


def retry_while_lost(seconds: float, work: Callable[[], T]) -> T:
    """Return what `work` returns; call it again while it raises one of CONNECTION_ERRORS.

    Args:
        seconds: how long to retry; then the last error is raised.
        work: an idempotent function, because it may run more than once.
    """
    delay = ReconnectDelay(seconds)
    while True:
        try:
            return work()
        except CONNECTION_ERRORS as failure:
            delay.wait_or_raise(failure)
