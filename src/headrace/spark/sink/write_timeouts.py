"""Why a server does not answer a write: its disk may be full.

Headrace holds the reply to a write that it cannot put on its disk, until the disk has room again, and rejects
further writes with MISCONF. A client that waits for a reply asks on a second connection whether writes
are rejected.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from headrace.client.retry import CONNECTION_ERRORS
from headrace.client.servers import TIMEOUT_S, RawConnection, Servers
from headrace.errors import CommandError, HeadraceError
from headrace.spark.sink.marker import hash_tagged

REPLY_PROBE_S = 2.0  # how long a reply may take before the server is asked why
PROBE_TIMEOUT_S = 5.0  # how long to wait for that answer
DISK_ERROR = "MISCONF"


def disk_error(servers: Servers, stream: str) -> str:
    """Return the error with which a server rejects writes because of its disk; empty if it accepts them.

    The request adds an entry to a stream that does not exist, if it exists: it changes nothing.
    """
    key = hash_tagged(stream.encode(errors="surrogateescape")) + b":headrace:none"
    try:
        wire = RawConnection(servers, stream)
    except (redis.RedisError, HeadraceError, *CONNECTION_ERRORS):
        return ""
    try:
        wire.send(b"XADD", key, b"NOMKSTREAM", b"*", b"a", b"a")
        answer = bytearray()
        buffer = bytearray(4096)
        while not answer.endswith(b"\r\n") and wire.wait_readable(PROBE_TIMEOUT_S):
            answer += buffer[: wire.receive(buffer)]
    except (redis.RedisError, *CONNECTION_ERRORS):
        return ""
    finally:
        wire.close()
    line = bytes(answer).partition(b"\r\n")[0].decode(errors="replace")
    return line[1:] if line.startswith(f"-{DISK_ERROR}") else ""


def wait_for_reply(wire: RawConnection, servers: Servers, stream: str) -> None:
    """Return when there is something to receive, or a reply is so late that the server counts as lost.

    Raises:
        CommandError: if the server holds the reply because it cannot write to its disk.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while not wire.wait_readable(REPLY_PROBE_S):
        if reason := disk_error(servers, stream):
            raise CommandError(describe_disk_error(reason))
        if time.monotonic() > deadline:
            return


@contextmanager
def explain_timeouts(servers: Servers, stream: str) -> Iterator[None]:
    """Turn a timeout within into a CommandError if the stream's server cannot write to its disk."""
    try:
        yield
    except redis.TimeoutError as error:
        if reason := disk_error(servers, stream):
            raise CommandError(describe_disk_error(reason)) from error
        raise


def describe_disk_error(reason: str) -> str:
    """Return what a server's disk error means."""
    return f"{reason} (the server rejects writes until its disk accepts them again)"
