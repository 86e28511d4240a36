"""Where the servers are: one server, a master found through Sentinel, or a cluster. redis-py makes the
connections.

    pool_for_key(key)   connections to the server that owns a key
    refresh()           a server was lost or no longer owns a key: forget cached addresses

Connections use RESP2, return bytes and never retry: only the backend (remote_backend.py) knows which requests
may be repeated.
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
from redis.sentinel import SentinelConnectionPool

from headrace.client.url import ServerUrl, cluster_node_error, parse_server_url, without_password
from headrace.errors import UsageError

SOCKET_TIMEOUT_S = 30.0  # a server that is silent for this long counts as dead
RESTART_TIMEOUT_S = 20.0  # how long to wait for a server that is restarted
FAILOVER_TIMEOUT_S = (
    90.0  # or for another to take its place: Sentinels look for 30 s before they act, clusters 15 s
)

CONNECTION_SETTINGS = {"protocol": 2, "decode_responses": False, "encoding": "utf-8"}
CLIENT_OWN_SETTINGS = ("maint_notifications", "event_dispatcher", "cache", "connection_pool")


def no_retry_settings() -> dict[str, Any]:
    """Connection settings without any retry."""
    return CONNECTION_SETTINGS | {"retry": Retry(NoBackoff(), 0)}


class Standalone:
    """One server: a single pool of connections."""

    reconnect_timeout = RESTART_TIMEOUT_S

    def __init__(self, pool: ConnectionPool, shown: str) -> None:
        self._pool = pool
        self._shown = shown
        self.timeout: float | None = pool.connection_kwargs.get("socket_timeout")

    def pool_for_key(self, key: bytes | None) -> ConnectionPool:
        """The connections."""
        return self._pool

    def pool_for_address(self, address: tuple[str, int]) -> ConnectionPool:
        """Raise UsageError: this server has no cluster."""
        raise cluster_node_error(self._shown)

    def on_redirect(self) -> None:
        """Raise UsageError: the server named another owner of the key, so it is a node of a cluster."""
        raise cluster_node_error(self._shown)

    def slot_of(self, key: bytes | None) -> int:
        """Return 0: all keys may be changed in one transaction."""
        return 0

    def refresh(self) -> None:
        """Close idle connections: they may lead to a server that is no longer the master."""
        self._pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        """Close the connections."""
        self._pool.disconnect()

    def __repr__(self) -> str:
        return self._shown


class Sentinel(Standalone):
    """The master that Sentinels name; a failover may replace it."""

    reconnect_timeout = FAILOVER_TIMEOUT_S


class Cluster:
    """A cluster: each key has an owner."""

    reconnect_timeout = FAILOVER_TIMEOUT_S

    def __init__(self, nodes: list[tuple[str, int]], settings: dict[str, Any], shown: str) -> None:
        self._nodes = nodes
        self._settings = settings
        self._shown = shown
        self._lock = threading.Lock()
        self._cluster: Any = None
        self.timeout: float | None = settings.get("socket_timeout")

    def _connected(self) -> Any:
        with self._lock:
            if self._cluster is None:
                nodes = [ClusterNode(host, port) for host, port in self._nodes]  # type: ignore[no-untyped-call]
                self._cluster = RedisCluster(
                    startup_nodes=nodes, require_full_coverage=False, **self._settings | no_retry_settings()
                )
            return self._cluster

    def pool_for_key(self, key: bytes | None) -> ConnectionPool:
        """Return connections to the owner of the key; without a key, to any server."""
        cluster = self._connected()
        node = cluster.get_default_node() if key is None else cluster.get_node_from_key(key)
        return cluster.get_redis_connection(node).connection_pool  # type: ignore[no-any-return]

    def pool_for_address(self, address: tuple[str, int]) -> ConnectionPool:
        """Return connections to a server that another one named."""
        cluster = self._connected()
        node = cluster.get_node(*address) or ClusterNode(*address)  # type: ignore[no-untyped-call]
        return cluster.get_redis_connection(node).connection_pool  # type: ignore[no-any-return]

    def on_redirect(self) -> None:
        """Do nothing: redirects are normal in a cluster."""

    def slot_of(self, key: bytes | None) -> int:
        """Return the slot of the key."""
        return key_slot(key) if key is not None else 0

    def refresh(self) -> None:
        """Read the slots from the servers again; if none replies, start from those of the URL."""
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


Topology = Standalone | Cluster


def topology_of(server: Any) -> Topology:
    """Return the topology of a URL or a redis-py client. Raises UsageError for anything else."""
    if isinstance(server, str):
        return _topology_of_url(parse_server_url(server), without_password(server))
    if isinstance(server, RedisCluster):
        nodes = [(node.host, node.port) for node in server.nodes_manager.nodes_cache.values()]
        return Cluster(nodes, _connection_settings(server.nodes_manager.connection_kwargs), _shown(nodes))
    pool = getattr(server, "connection_pool", None)
    if not isinstance(pool, ConnectionPool):
        raise UsageError(f"{server!r} is neither a server URL nor a redis-py client")
    settings = _connection_settings(pool.connection_kwargs) | no_retry_settings()
    if isinstance(pool, SentinelConnectionPool):
        copy = SentinelConnectionPool(  # type: ignore[no-untyped-call]
            pool.service_name,
            pool.sentinel_manager,
            is_master=pool.is_master,
            connection_class=pool.connection_class,
            **settings,
        )
        return Sentinel(copy, f"the master of {pool.service_name!r}")
    where = [(settings.get("host", settings.get("path", "a redis-py client")), settings.get("port", 0))]
    return Standalone(ConnectionPool(connection_class=pool.connection_class, **settings), _shown(where))


def _topology_of_url(url: ServerUrl, shown: str) -> Topology:
    common = {"socket_timeout": SOCKET_TIMEOUT_S, "socket_connect_timeout": SOCKET_TIMEOUT_S}
    settings = common | url.settings
    if url.kind == "cluster":
        return Cluster(list(url.hosts), settings, shown)
    if url.kind == "sentinel":
        # A Sentinel that does not reply is not retried: the next one is asked.
        theirs = common | no_retry_settings() | url.sentinel_settings
        sentinels = redis.sentinel.Sentinel(url.hosts, sentinel_kwargs=theirs)  # type: ignore[no-untyped-call]
        pool = SentinelConnectionPool(url.service, sentinels, **settings | no_retry_settings())  # type: ignore[no-untyped-call]
        return Sentinel(pool, shown)
    kind = settings.pop("connection_class", Connection)
    return Standalone(ConnectionPool(connection_class=kind, **settings | no_retry_settings()), shown)


def _connection_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the user's connection settings without those that belong to its client."""
    return {name: value for name, value in settings.items() if not name.startswith(CLIENT_OWN_SETTINGS)}


def _shown(nodes: list[tuple[str, int]]) -> str:
    return ",".join(f"{host}:{port}" if port else host for host, port in nodes)
