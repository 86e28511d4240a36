"""Commands that block on a server, and that another thread can end.

    waiting thread    XREADGROUP BLOCK 10000 … ──▶ sleeps in poll(): on the connection and a WakeupSocket
    another thread    wakeup.wake()            ──▶ the waiting thread sends CLIENT UNBLOCK on a second
                                                   connection, and reads the reply: nil, or entries that
                                                   have arrived just before

The reply is always read, so that no delivered entry is lost.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Sequence
from typing import Any

import redis

from headrace.client.connection import Words, exchange
from headrace.client.connection_errors import ERROR_REPLY_EXCEPTIONS
from headrace.fork_safe_lock import ForkSafeLock

UNBLOCK_RETRY_MS = 20  # the server may get CLIENT UNBLOCK before the command that blocks
SPARE_MAX = 16  # wakeup sockets kept for later waits
UNUSED_CLIENT_ID = 0  # no client has it
CLIENT_ID_REQUEST: Words = (b"CLIENT", b"ID")


class WakeupSocket:
    """Ends a poll() from any thread or a signal handler."""

    __slots__ = ("_reader", "_writer")

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """End the current poll(), or the next one."""
        try:  # noqa: SIM105 - at exit the interpreter may have cleared this module, and with it suppress()
            self._writer.send(b"\0")
        except OSError:  # it is full, so it wakes anyway; or closed
            pass

    def fileno(self) -> int:
        """Return the descriptor to poll for input."""
        return self._reader.fileno()

    def clear(self) -> bool:
        """Forget calls of wake(). Returns whether there were any."""
        try:
            return bool(self._reader.recv(4096))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close both ends."""
        self._reader.close()
        self._writer.close()


class WakeupSocketPool:
    """A pool of wakeup sockets. Each serves one wait at a time.

    They are reused and not closed, because another thread may still call wake() of one whose wait is over.
    Then the next wait ends early, and its caller waits again.
    """

    def __init__(self) -> None:
        self._spare: list[WakeupSocket] = []
        self._closed = False
        self._process = os.getpid()
        self._lock = ForkSafeLock()

    def take(self) -> WakeupSocket:
        """Return a socket for one wait: a spare one, or a new one."""
        with self._lock:
            if self._process != os.getpid():  # those of the parent process are shared with it
                self._spare = []
                self._process = os.getpid()
            if self._spare:
                return self._spare.pop()
        return WakeupSocket()

    def give_back(self, wakeup: WakeupSocket) -> None:
        """Keep a socket whose wait is over, or close it if there are enough."""
        wakeup.clear()
        with self._lock:
            if len(self._spare) < SPARE_MAX and self._process == os.getpid() and not self._closed:
                self._spare.append(wakeup)
                return
        wakeup.close()

    def close(self) -> None:
        """Close the sockets that are not in use. The others are closed when they are given back."""
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, []
        for wakeup in spare:
            wakeup.close()


def may_unblock(connection: Any) -> bool:
    """Return whether the server and the user's rights allow ending a blocked command."""
    replies = exchange(connection, [CLIENT_ID_REQUEST, (b"CLIENT", b"UNBLOCK", UNUSED_CLIENT_ID)])
    return isinstance(connection._sock, socket.socket) and not any(
        isinstance(reply, Exception) for reply in replies
    )


def exchange_until_woken(
    pool: Any, connection: Any, request: Sequence[bytes], wakeup: WakeupSocket, seconds: float
) -> Any:
    """Send a command that blocks and return its reply; an error reply is an exception of redis-py.

    Args:
        pool: where another connection to the same server comes from.
        connection: the connection to send it on; may_unblock() has returned True for one of the pool.
        request: the command.
        wakeup: its wake() ends the command early, as if it had timed out.
        seconds: when a server that has not replied counts as dead.

    Raises:
        redis.TimeoutError: if the server does not reply in time.
        redis.ConnectionError: if the connection is lost. After any exception the connection is closed.
    """
    try:
        client_id = client_id_of(connection)
        sock = connection._sock
        connection.send_packed_command(connection.pack_command(*request))
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        poll.register(wakeup.fileno(), select.POLLIN)
        timeout_ms: float = seconds * 1000
        while not connection.can_read(0):
            if not poll.poll(timeout_ms):
                raise redis.TimeoutError("the server did not reply in time")
            if wakeup.clear():
                timeout_ms = unblock_on_other_connection(pool, client_id, sock)
            if connection._sock is not sock:
                raise redis.ConnectionError("the connection was closed")
        try:
            return connection.read_response()
        except ERROR_REPLY_EXCEPTIONS as error:
            return error
    except BaseException:
        connection.disconnect()
        raise


def unblock_on_other_connection(pool: Any, client_id: int, sock: socket.socket) -> float:
    """Send CLIENT UNBLOCK on another connection until the blocked one has a reply, or is closed.

    Returns the milliseconds to wait for that reply.
    """
    try:
        other = pool.get_connection()
    except redis.MaxConnectionsError:
        other = pool.connection_class(**pool.connection_kwargs)
        try:
            return unblock_through(other, client_id, sock)
        finally:
            other.disconnect()
    try:
        return unblock_through(other, client_id, sock)
    finally:
        pool.release(other)


def unblock_through(other: Any, client_id: int, sock: socket.socket) -> float:
    """Send CLIENT UNBLOCK on the connection `other` until `sock` has a reply, or is closed.

    Returns the milliseconds to wait for that reply.

    Another thread may close `sock` at any time, and the next socket that is opened may get its descriptor.
    """
    reply: Any = 0
    while reply == 0 and (fd := sock.fileno()) >= 0:
        (reply,) = exchange(other, [(b"CLIENT", b"UNBLOCK", client_id)])
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if reply == 0 and poll.poll(UNBLOCK_RETRY_MS):
            break
    return (other.socket_timeout or 30.0) * 1000


def client_id_of(connection: Any) -> int:
    """Return the client ID that the server gave the connection. The server is asked once for each socket."""
    sock, client_id = getattr(connection, "headrace_client_id", (None, 0))
    if sock is not None and sock is connection._sock:
        return int(client_id)
    (reply,) = exchange(connection, [CLIENT_ID_REQUEST])
    if isinstance(reply, Exception):
        raise reply
    connection.headrace_client_id = (connection._sock, reply)
    return int(reply)
