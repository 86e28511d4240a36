"""Wait until replicas have what a task has written, so that a failover loses none of it.

    EXEC                 WAIT 2 1000    how many replicas have everything that this connection has written
    SET … "" PX 1000     WAIT 2 1000    the same for what other connections wrote before

If fewer replicas confirm in time, the server may be a former primary that no replica follows any more. So
the connection counts as lost, and the next connection asks the Sentinels again.
"""

from __future__ import annotations

from headrace.client.connection_errors import ServerUnavailable, is_role_change_error
from headrace.companion_keys import companion_key_prefix
from headrace.errors import CommandError
from headrace.resp.request import request

WAIT_MS = 1000  # shorter than write_timeouts.REPLY_PROBE_S


class WritesUnconfirmed(ServerUnavailable):
    """The rows are stored, but too few replicas have confirmed them yet."""


def wait_request(replicas: int) -> bytes:
    """Return the request that waits for replicas; empty if `replicas` is 0."""
    return request(b"WAIT", b"%d" % replicas, b"%d" % WAIT_MS) if replicas else b""


def barrier_write_request(stream: bytes) -> bytes:
    """Return a write that comes after all earlier writes: a WAIT after it also covers other connections."""
    return request(b"SET", companion_key_prefix(stream) + b":headrace:wait", b"", b"PX", b"%d" % WAIT_MS)


def check_confirmed(reply: object, replicas: int, stream: str) -> None:
    """Check the reply to WAIT.

    Raises:
        WritesUnconfirmed: if fewer than `replicas` replicas have confirmed in time.
        ServerUnavailable: if the server became a replica.
        CommandError: if it rejects WAIT.
    """
    if is_role_change_error(reply):
        raise ServerUnavailable(str(reply))
    if isinstance(reply, CommandError):
        raise CommandError(f"{reply} (waiting for replicas of the stream {stream!r})")
    confirmed = int(reply) if isinstance(reply, int | bytes) else 0
    if confirmed < replicas:
        raise WritesUnconfirmed(
            f"the rows for the stream {stream!r} are stored, but {confirmed} of {replicas} replicas have "
            "confirmed them (option waitReplicas)"
        )
