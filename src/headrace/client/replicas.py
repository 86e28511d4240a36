"""Connections to a replica, for reading.

    redis://…        the server itself if it is a replica, else one of those that its ROLE lists
    sentinel://…     one of those that the Sentinels know

Only a replica whose link to its primary is up is used, and always the same one until it is lost. Replicas
that have XARROW are preferred. A replica may be behind its primary, or behind the replica that was used
before: require_caught_up() detects that. It is not an error if the primary lacks the entries, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import redis
from redis.connection import ConnectionPool, SSLConnection
from redis.exceptions import NoPermissionError, ResponseError
from redis.sentinel import Sentinel

from headrace.client.connection_errors import (
    AUTH_ERRORS,
    CONNECTION_ERRORS,
    UNAVAILABLE_ERRORS,
    ServerUnavailable,
)
from headrace.client.stream_names import stream_key
from headrace.client.topology import (
    CONNECTION_SETTINGS,
    DEFAULT_SETTINGS,
    FAILOVER_TIMEOUT_S,
    NO_RETRY,
    RESTART_TIMEOUT_S,
    Standalone,
    require_master,
    settings_for_sentinels,
    topology_of_url,
)
from headrace.client.url import ServerUrl
from headrace.errors import UsageError, copy_error
from headrace.fork_safe_lock import ForkSafeLock

ADDRESS_SETTING_NAMES = ("host", "port", "path", "connection_class")  # settings that say where a server is


def _is_rejection(error: BaseException) -> bool:
    """Return whether a server rejects requests of this user; not if it only cannot serve them now."""
    return isinstance(error, (ResponseError, *AUTH_ERRORS)) and not isinstance(error, UNAVAILABLE_ERRORS)


class ReadReplicaTopology(Standalone):
    """The topology of a URL whose reads go to a replica: of the server, or of the Sentinels' master."""

    def __init__(self, url: ServerUrl, shown: str) -> None:
        """Prepare the connection settings; connect when client() is first called.

        shown: the URL without its password. Raises UsageError for a cluster.
        """
        if url.kind == "cluster":
            raise UsageError(f"{shown}: replicas of a cluster cannot be read from")
        self._url = url
        own = {"retry": NO_RETRY, "redis_connect_func": require_replica}
        self._settings = DEFAULT_SETTINGS | url.settings | CONNECTION_SETTINGS | own
        self._shown = shown
        self._lock = ForkSafeLock()
        self._chosen: redis.Redis | None = None
        self.timeout = self._settings.get("socket_timeout")
        self.reconnect_timeout = FAILOVER_TIMEOUT_S if url.kind == "sentinel" else RESTART_TIMEOUT_S

    def client(self) -> Any:
        """Return redis-py's client of the replica; choose one if there is none. Raises ServerUnavailable."""
        with self._lock:
            if self._chosen is None:
                self._chosen = self._choose()
            return self._chosen

    def pool_for_key(self, key: bytes | None) -> ConnectionPool:
        """Return the pool of connections to the replica, which has all keys."""
        pool: ConnectionPool = self.client().connection_pool
        return pool

    def refresh(self) -> None:
        """Close idle connections and forget the chosen replica; the next client() chooses one again."""
        with self._lock:
            chosen, self._chosen = self._chosen, None
        if chosen is not None:
            chosen.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        """Close the connections."""
        self.refresh()

    def require_caught_up(self, last_ids: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Raise ServerUnavailable if a stream at the replica ends before an ID that its primary has.

        If the stream at the primary also ends before that ID, nothing is raised: it was deleted, or a
        failover has lost entries. The primary is only asked if a stream at the replica ends too early.

        Args:
            last_ids: the last ID of each stream at the replica; without those that do not exist there.
            wanted: by stream, the ID of an entry that was seen earlier.
        """
        lacking = [s for s in wanted if _id_numbers(last_ids.get(s)) < _id_numbers(wanted[s])]
        if not lacking:
            return
        with self._primary_client() as primary:
            for stream in lacking:
                if _id_numbers(_last_id_at(primary, stream)) >= _id_numbers(wanted[stream]):
                    raise ServerUnavailable(
                        f"the replica has the stream {stream!r} up to {last_ids.get(stream, '0-0')}, not yet "
                        f"up to {wanted[stream]}: it is behind its primary"
                    )

    def _primary_client(self) -> Any:
        """Return a client of the primary; if the URL is that of a replica, of the server that it follows."""
        client = topology_of_url(self._url, self._shown).client()
        role = client.execute_command("ROLE")
        if role[0] == b"master":
            return client
        client.close()
        settings = self._settings_at(role[1].decode(), int(role[2])) | {"redis_connect_func": require_master}
        return redis.Redis.from_pool(ConnectionPool(**settings))

    def _choose(self) -> redis.Redis:
        """Return a client of a replica that is connected to its primary, preferably one with XARROW.

        Raises ServerUnavailable if there is no such replica. If all replicas reject requests, as of a user
        without permission, raises the error of one of them.
        """
        candidates = list(self._candidates())
        random.shuffle(candidates)
        second_best: redis.Redis | None = None
        failures: list[BaseException] = []
        for settings in candidates:
            client = redis.Redis.from_pool(ConnectionPool(**settings))
            try:
                client.ping()
                is_preferred = len(candidates) == 1 or _has_xarrow(client)
            except (redis.RedisError, *CONNECTION_ERRORS) as error:
                client.close()
                failures.append(copy_error(error))  # without traceback: it refers to this frame
                continue
            if is_preferred:
                if second_best is not None:
                    second_best.close()
                return client
            if second_best is None:
                second_best = client
            else:
                client.close()
        if second_best is None:
            if failures and all(map(_is_rejection, failures)):
                raise failures[0]
            raise ServerUnavailable(f"{self._shown} has no replica that is connected to it")
        return second_best

    def _candidates(self) -> Iterable[dict[str, Any]]:
        """Return the connection settings of every replica."""
        if self._url.kind == "sentinel":
            sentinels = Sentinel(self._url.hosts, sentinel_kwargs=settings_for_sentinels(self._url))  # type: ignore[no-untyped-call]
            found = sentinels.discover_slaves(self._url.service)  # type: ignore[no-untyped-call]
            return [self._settings_at(host, port) for host, port in found]
        settings = {name: self._settings[name] for name in self._settings if name != "redis_connect_func"}
        with redis.Redis.from_pool(ConnectionPool(**settings)) as client:
            role = client.execute_command("ROLE")
        if role[0] != b"master":
            return [self._settings]
        return [self._settings_at(host.decode(), int(port)) for host, port, _ in role[2]]

    def _settings_at(self, host: str, port: int) -> dict[str, Any]:
        settings = {
            name: value for name, value in self._settings.items() if name not in ADDRESS_SETTING_NAMES
        }
        if settings.pop("ssl", False) or self._settings.get("connection_class") is SSLConnection:
            settings["connection_class"] = SSLConnection
        return settings | {"host": host, "port": port}


def require_replica(connection: Any) -> None:
    """Log in; raise ServerUnavailable unless the server is a replica whose link to its primary is up.

    If the user may not send ROLE, this is not checked.
    """
    connection.on_connect()
    connection.send_command("ROLE")
    try:
        role = connection.read_response()
    except NoPermissionError:
        return
    if role[0] != b"slave" or role[3] != b"connected":
        raise ServerUnavailable("the server is not a replica that is connected to its primary")


def _has_xarrow(client: Any) -> bool:
    try:
        return client.execute_command("COMMAND INFO", "XARROW")[0] is not None
    except (ResponseError, IndexError):  # for example, no permission for COMMAND
        return False


def _last_id_at(client: Any, stream: str) -> str:
    try:
        last: bytes = client.xinfo_stream(stream_key(stream))["last-generated-id"]
    except ResponseError as error:
        if "no such key" in str(error).lower():
            return "0-0"
        raise
    return last.decode()


def _id_numbers(entry_id: str | None) -> tuple[int, int]:
    ms, _, seq = (entry_id or "0-0").partition("-")
    return int(ms), int(seq)
