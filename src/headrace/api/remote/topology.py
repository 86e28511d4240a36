"""Where the servers are: one, the master that Sentinels name, or a cluster. redis-py makes the connections.

    pool(key)         connections to the server that owns a key
    look_again()      a server was lost, or is not the owner any more: forget what was known

Connections of a place speak RESP2, leave bytes as they are, and try nothing twice: what may be tried again is
known to the link (remote_backend.py) alone.
"""

from __future__ import annotations

import threading
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import Connection, ConnectionPool
from redis.crc import key_slot
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from headrace.errors import UsageError
from headrace.server_url import ServerUrl, cluster_node_error, parse_server_url, without_password

TIMEOUT_S = 30.0  # a server that says nothing for so long is taken for dead
RESTART_S = 20.0  # how long to wait for a server that is restarted
FAILOVER_S = 90.0  # or for another to take its place: Sentinels look for 30 s before they act, clusters 15 s

PLAIN = {"protocol": 2, "decode_responses": False, "encoding": "utf-8"}
NOT_TAKEN_OVER = ("maint_notifications", "event_dispatcher", "cache", "connection_pool")


def once() -> dict[str, Any]:
    """Settings of connections that try nothing twice."""
    return PLAIN | {"retry": Retry(NoBackoff(), 0)}


class OnePlace:
    """One server, or the master that Sentinels name: a single pool of connections."""

    patience = RESTART_S

    def __init__(self, pool: ConnectionPool, shown: str) -> None:
        self._pool = pool
        self._shown = shown
        self.timeout: float | None = pool.connection_kwargs.get("socket_timeout")

    def pool(self, key: bytes | None) -> ConnectionPool:
        """The connections."""
        return self._pool

    def pool_at(self, address: tuple[str, int]) -> ConnectionPool:
        """Another server's: none is known here."""
        raise cluster_node_error(self._shown)

    def sent_elsewhere(self) -> None:
        """A server has said that another has the key: UsageError where there should be no other."""
        raise cluster_node_error(self._shown)

    def slot(self, key: bytes | None) -> int:
        """Keys of one slot may be changed together: here all may."""
        return 0

    def look_again(self) -> None:
        """Connections that wait in the pool may lead to a server that is master no more."""
        self._pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        """Close the connections."""
        self._pool.disconnect()

    def __repr__(self) -> str:
        return self._shown


class WatchedPlace(OnePlace):
    """The master that Sentinels name; another may take its place."""

    patience = FAILOVER_S


class ClusterPlace:
    """A cluster: each key has its owner."""

    patience = FAILOVER_S

    def __init__(self, nodes: list[tuple[str, int]], settings: dict[str, Any], shown: str) -> None:
        self._nodes = nodes
        self._settings = settings
        self._shown = shown
        self._lock = threading.Lock()
        self._cluster: Any = None
        self.timeout: float | None = settings.get("socket_timeout")

    def _made(self) -> Any:
        with self._lock:
            if self._cluster is None:
                nodes = [ClusterNode(host, port) for host, port in self._nodes]  # type: ignore[no-untyped-call]
                self._cluster = RedisCluster(
                    startup_nodes=nodes, require_full_coverage=False, **self._settings | once()
                )
            return self._cluster

    def pool(self, key: bytes | None) -> ConnectionPool:
        """Connections to the owner of the key, or to any server without one."""
        cluster = self._made()
        node = cluster.get_default_node() if key is None else cluster.get_node_from_key(key)
        return cluster.get_redis_connection(node).connection_pool  # type: ignore[no-any-return]

    def pool_at(self, address: tuple[str, int]) -> ConnectionPool:
        """Connections to a server that another one named."""
        cluster = self._made()
        node = cluster.get_node(*address) or ClusterNode(*address)  # type: ignore[no-untyped-call]
        return cluster.get_redis_connection(node).connection_pool  # type: ignore[no-any-return]

    def sent_elsewhere(self) -> None:
        """A server has said that another has the key: so it is in a cluster."""

    def slot(self, key: bytes | None) -> int:
        """The slot that holds the key."""
        return key_slot(key) if key is not None else 0

    def look_again(self) -> None:
        """Ask the servers again who owns what; if none of them answers, begin with those of the URL."""
        with self._lock:
            cluster = self._cluster
        try:
            if cluster is not None:
                cluster.nodes_manager.initialize()
        except (redis.RedisError, OSError):
            with self._lock:
                if self._cluster is cluster:
                    self._cluster = None

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def __repr__(self) -> str:
        return self._shown


Place = OnePlace | ClusterPlace


def place_of(server: Any) -> Place:
    """The place that a URL means, or to which a redis-py client leads. UsageError for anything else."""
    if isinstance(server, str):
        return _place_of_url(parse_server_url(server), without_password(server))
    if isinstance(server, RedisCluster):
        nodes = [(node.host, node.port) for node in server.nodes_manager.nodes_cache.values()]
        return ClusterPlace(nodes, _taken_over(server.nodes_manager.connection_kwargs), _shown(nodes))
    pool = getattr(server, "connection_pool", None)
    if not isinstance(pool, ConnectionPool):
        raise UsageError(f"{server!r} is neither a server's URL nor a client of redis-py")
    settings = _taken_over(pool.connection_kwargs) | once()
    if isinstance(pool, SentinelConnectionPool):
        copy = SentinelConnectionPool(  # type: ignore[no-untyped-call]
            pool.service_name,
            pool.sentinel_manager,
            is_master=pool.is_master,
            connection_class=pool.connection_class,
            **settings,
        )
        return WatchedPlace(copy, f"the master of {pool.service_name!r}")
    where = [(settings.get("host", settings.get("path", "a redis-py client")), settings.get("port", 0))]
    return OnePlace(ConnectionPool(connection_class=pool.connection_class, **settings), _shown(where))


def _place_of_url(url: ServerUrl, shown: str) -> Place:
    common = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
    settings = common | url.settings
    if url.kind == "cluster":
        return ClusterPlace(list(url.hosts), settings, shown)
    if url.kind == "sentinel":
        # Of a Sentinel that does not answer nothing is expected: the next one is asked.
        theirs = common | once() | url.sentinel_settings
        sentinels = Sentinel(url.hosts, sentinel_kwargs=theirs)  # type: ignore[no-untyped-call]
        pool = SentinelConnectionPool(url.service, sentinels, **settings | once())  # type: ignore[no-untyped-call]
        return WatchedPlace(pool, shown)
    kind = settings.pop("connection_class", Connection)
    return OnePlace(ConnectionPool(connection_class=kind, **settings | once()), shown)


def _taken_over(settings: dict[str, Any]) -> dict[str, Any]:
    """A user's settings of connections, without what belongs to the client they were made for."""
    return {name: value for name, value in settings.items() if not name.startswith(NOT_TAKEN_OVER)}


def _shown(nodes: list[tuple[str, int]]) -> str:
    return ",".join(f"{host}:{port}" if port else host for host, port in nodes)
