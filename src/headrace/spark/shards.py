"""Connections to the servers that hold the streams, by redis-py. Made where they are used, never pickled."""

from __future__ import annotations

import socket
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

TIMEOUT_S = 30  # a server that says nothing for so long is taken for dead
RETRIES = 6  # with waits of 0.1 to 2 s between: a server may take a few seconds to restart
LOST = (redis.ConnectionError, redis.TimeoutError, OSError)


def retry() -> Retry:
    """How often, and how patiently, a lost connection is made again."""
    return Retry(ExponentialBackoff(cap=2, base=0.1), RETRIES, supported_errors=LOST)


def client(url: str) -> redis.Redis:
    """A client for planning: few commands, small answers."""
    return redis.Redis.from_url(
        url, protocol=2, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=retry()
    )


class Wire:
    """One connection, opened by redis-py (TLS, login, database), whose answers we read as raw bytes."""

    def __init__(self, url: str) -> None:
        pool = redis.ConnectionPool.from_url(
            url, protocol=2, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=retry()
        )
        self._connection: Any = pool.connection_class(**pool.connection_kwargs)
        self._connection.connect()
        self._socket: socket.socket = self._connection._sock

    def send(self, *words: bytes | int) -> None:
        """Send one command; its answer comes in through receive()."""
        self._connection.send_packed_command(self._connection.pack_command(*words), check_health=False)

    def send_raw(self, commands: bytes) -> None:
        """Send commands that are encoded already."""
        self._connection.send_packed_command([commands], check_health=False)

    def receive(self, buffer: bytearray) -> int:
        """Read what has arrived into buffer, waiting for the first byte; how many bytes there are."""
        n = self._socket.recv_into(buffer)
        if n == 0:
            raise redis.ConnectionError("the server closed the connection")
        return n

    def close(self) -> None:
        """Close the socket; also when an answer is still on its way."""
        self._connection.disconnect()
