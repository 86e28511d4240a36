"""Explain why a server does not reply to a write: its disk may be full.

Headrace holds the reply to a write that it cannot put on its disk, until the disk has room again, and rejects
further writes with MISCONF. A client that waits for a reply asks on a second connection whether writes
are rejected.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.exceptions import ResponseError

from headrace.client.connection import RawConnection
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.servers import Servers
from headrace.client.topology import SOCKET_TIMEOUT_S
from headrace.companion_keys import companion_key_prefix
from headrace.errors import CommandError, HeadraceError

REPLY_PROBE_S = 2.0  # how long a reply may take before the server is probed
PROBE_TIMEOUT_S = 5.0  # how long to wait for the reply to the probe
DISK_ERROR_CODE = "MISCONF"


def probe_disk_error(servers: Servers, stream: str) -> str:
    """Ask a stream's server whether it rejects writes because of its disk.

    The request is XADD NOMKSTREAM to a key that does not exist, so it changes nothing.

    Returns:
        The MISCONF error; empty if the server accepts writes, or cannot be asked.
    """
    key = companion_key_prefix(stream.encode(errors="surrogateescape")) + b":headrace:none"
    try:
        connection = RawConnection(servers, stream)
    except (redis.RedisError, HeadraceError, *CONNECTION_ERRORS):
        return ""
    try:
        [reply] = connection.exchange([(b"XADD", key, b"NOMKSTREAM", b"*", b"a", b"a")], PROBE_TIMEOUT_S)
    except (redis.RedisError, *CONNECTION_ERRORS):
        return ""
    finally:
        connection.close()
    text = str(reply)
    return text if isinstance(reply, ResponseError) and text.startswith(DISK_ERROR_CODE) else ""


def wait_for_reply(connection: RawConnection, servers: Servers, stream: str) -> None:
    """Wait until the connection is readable.

    Raises:
        CommandError: if the server holds the reply because it cannot write to its disk.
        TimeoutError: if there is no reply for SOCKET_TIMEOUT_S seconds.
    """
    deadline = time.monotonic() + SOCKET_TIMEOUT_S
    while not connection.wait_readable(REPLY_PROBE_S):
        if reason := probe_disk_error(servers, stream):
            raise CommandError(describe_disk_error(reason))
        if time.monotonic() > deadline and not connection.wait_readable(0):  # the probe takes time, too
            raise TimeoutError(f"no reply for {SOCKET_TIMEOUT_S:g} seconds")


@contextmanager
def explain_timeouts(servers: Servers, stream: str) -> Iterator[None]:
    """Convert a timeout into a CommandError if the stream's server cannot write to its disk."""
    try:
        yield
    except redis.TimeoutError as error:
        if reason := probe_disk_error(servers, stream):
            raise CommandError(describe_disk_error(reason)) from error
        raise


def describe_disk_error(reason: str) -> str:
    """Return a server's disk error with an explanation."""
    return f"{reason} (the server rejects writes until its disk accepts them again)"
