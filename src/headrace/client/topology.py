"""Find the servers: one server, a master found through Sentinel, or a cluster. redis-py connects to them.

    client()            redis-py's, which finds the owners of keys
    pool_for_key(key)   connections to the server that owns a key
    refresh()           a server was lost or no longer owns a key: forget cached addresses

Connections use RESP2 and return bytes. Unless told otherwise they never retry: only the caller knows which
requests may be repeated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import ConnectionPool
from redis.crc import key_slot
from redis.exceptions import NoPermissionError
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from headrace.client.connection_errors import CONNECTION_ERRORS, ServerUnavailable, cluster_node_error
from headrace.client.redis_clients import redis_client
from headrace.client.reply_shapes import add_reply_checks
from headrace.client.url import ServerUrl, parse_server_url, without_password
from headrace.errors import UsageError
from headrace.fork_safe_lock import ForkSafeLock

SOCKET_TIMEOUT_S = 30.0  # a server that is silent for this long counts as dead
RESTART_TIMEOUT_S = 20.0  # how long to wait for a server that is restarted
# or for another to take its place: Sentinels look for 30 s before they act, clusters 15 s
FAILOVER_TIMEOUT_S = 90.0

# Each follower and blocked reader takes a connection: only the server's maxclients limits them. redis-py's
# default is 100.
CONNECTIONS_MAX = 1 << 31
DEFAULT_SETTINGS: dict[str, Any] = {
    "socket_timeout": SOCKET_TIMEOUT_S,
    "socket_connect_timeout": SOCKET_TIMEOUT_S,
    "max_connections": CONNECTIONS_MAX,
}
CONNECTION_SETTINGS = {"protocol": 2, "decode_responses": False, "encoding": "utf-8"}
CLIENT_ONLY_SETTING_PREFIXES = ("maint_notifications", "event_dispatcher", "cache", "connection_pool")
NO_RETRY = Retry(NoBackoff(), 0)


class Standalone:
    """One server: a single pool of connections."""

    reconnect_timeout = RESTART_TIMEOUT_S
    was_connected = False  # the server has replied before, to any backend that shares this
    transactions_work = False  # an empty transaction was executed: the user may send MULTI and EXEC
    unblock_works: bool | None = None  # the user may send CLIENT ID and CLIENT UNBLOCK; None: not known yet

    def __init__(self, client: redis.Redis, shown: str) -> None:
        self._client = client
        self._pool: ConnectionPool = client.connection_pool
        self._shown = shown
        self.timeout: float | None = self._pool.connection_kwargs.get("socket_timeout")

    def client(self) -> Any:
        """Return redis-py's client."""
        return self._client

    def pool_for_key(self, key: bytes | None) -> ConnectionPool:
        """Return the pool of connections to the server, which has all keys."""
        return self._pool

    def pool_for_address(self, address: tuple[str, int]) -> ConnectionPool:
        """Raise UsageError: the server named another one, so it is a node of a cluster."""
        raise cluster_node_error(self._shown)

    def on_redirect(self) -> None:
        """Raise UsageError: the server named another owner of the key, so it is a node of a cluster."""
        raise cluster_node_error(self._shown)

    def slot_of(self, key: bytes | None) -> int:
        """Return 0: all keys may be changed in one transaction."""
        return 0

    def owner_node_name(self, key: bytes | None) -> str:
        """Return an empty name: there is only one server, which owns all keys."""
        return ""

    def refresh(self) -> None:
        """Close idle connections: they may lead to a server that is no longer the master."""
        self._pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        """Close the connections. They are opened again when they are used again."""
        self._pool.disconnect()

    def __repr__(self) -> str:
        return self._shown


class Sentinel(Standalone):
    """The master that Sentinels name; a failover may replace it."""

    reconnect_timeout = FAILOVER_TIMEOUT_S


class Cluster:
    """A cluster: each key has an owner."""

    reconnect_timeout = FAILOVER_TIMEOUT_S
    was_connected = False
    transactions_work = False
    unblock_works: bool | None = None

    def __init__(self, nodes: list[tuple[str, int]], settings: dict[str, Any], shown: str) -> None:
        self._nodes = nodes
        self._settings = settings
        self._shown = shown
        self._lock = ForkSafeLock()
        self._cluster: Any = None
        self.timeout: float | None = settings.get("socket_timeout")

    def client(self) -> Any:
        """Return redis-py's client; make it if there is none."""
        with self._lock:
            if self._cluster is None:
                nodes = [ClusterNode(host, port) for host, port in self._nodes]  # type: ignore[no-untyped-call]
                self._cluster = RedisCluster(
                    startup_nodes=nodes, require_full_coverage=False, **self._settings
                )
            return self._cluster

    def pool_for_key(self, key: bytes | None) -> ConnectionPool:
        """Return connections to the owner of the key; without a key, to any server."""
        return self.client().get_redis_connection(self._node(key)).connection_pool  # type: ignore[no-any-return]

    def pool_for_address(self, address: tuple[str, int]) -> ConnectionPool:
        """Return connections to a server that another one named."""
        cluster = self.client()
        node = cluster.get_node(*address) or ClusterNode(*address)  # type: ignore[no-untyped-call]
        return cluster.get_redis_connection(node).connection_pool  # type: ignore[no-any-return]

    def on_redirect(self) -> None:
        """Do nothing: redirects are normal in a cluster."""

    def slot_of(self, key: bytes | None) -> int:
        """Return the slot of the key."""
        return key_slot(key) if key is not None else 0

    def owner_node_name(self, key: bytes | None) -> str:
        """Return the name of the server that owns the key; keys of one server may share a connection."""
        return str(self._node(key).name)

    def _node(self, key: bytes | None) -> Any:
        cluster = self.client()
        return cluster.get_default_node() if key is None else cluster.get_node_from_key(key)

    def refresh(self) -> None:
        """Read the slots from the servers again; if none replies, start from the servers in the URL."""
        with self._lock:
            cluster = self._cluster
        try:
            if cluster is not None:
                cluster.nodes_manager.initialize()
        except (redis.RedisError, *CONNECTION_ERRORS):
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
        return topology_of_url(parse_server_url(server), without_password(server))
    fixed = CONNECTION_SETTINGS | {"retry": NO_RETRY}
    if isinstance(server, RedisCluster):
        nodes = [(node.host, node.port) for node in server.nodes_manager.nodes_cache.values()]
        settings = _connection_settings(server.nodes_manager.connection_kwargs) | fixed
        return Cluster(nodes, settings, _format_addresses(nodes))
    pool = getattr(server, "connection_pool", None)
    if not isinstance(pool, ConnectionPool):
        raise UsageError(f"{server!r} is neither a server URL nor a redis-py client")
    settings = (
        _connection_settings(pool.connection_kwargs) | fixed | {"connection_class": pool.connection_class}
    )
    if isinstance(pool, SentinelConnectionPool):
        copy = SentinelConnectionPool(  # type: ignore[no-untyped-call]
            pool.service_name, pool.sentinel_manager, is_master=pool.is_master, **settings
        )
        return Sentinel(redis.Redis.from_pool(copy), f"the master of {pool.service_name!r}")
    where = [(settings.get("host", settings.get("path", "a redis-py client")), settings.get("port", 0))]
    return Standalone(
        redis.Redis.from_pool(ConnectionPool(max_connections=pool.max_connections, **settings)),
        _format_addresses(where),
    )


def topology_of_url(url: ServerUrl, shown: str, retry: Retry | None = NO_RETRY) -> Topology:
    """Return the topology of a URL. It connects when it is first used.

    Args:
        shown: the URL without its password, for messages.
        retry: redis-py's retry policy; None: its default.
    """
    settings = DEFAULT_SETTINGS | url.settings | CONNECTION_SETTINGS | {"retry": retry}
    if url.kind == "cluster":
        return Cluster(list(url.hosts), settings, shown)
    if url.kind == "standalone":
        return Standalone(add_reply_checks(redis_client(url, **settings), shown), shown)
    # A Sentinel that does not reply is not retried: the next one is asked.
    sentinels = settings_for_sentinels(url)
    settings["redis_connect_func"] = require_master
    client = redis_client(replace(url, sentinel_settings=sentinels), **settings)
    return Sentinel(add_reply_checks(client, shown), shown)


def settings_for_sentinels(url: ServerUrl) -> dict[str, Any]:
    """Return the connection settings for the Sentinels of a URL."""
    return DEFAULT_SETTINGS | CONNECTION_SETTINGS | {"retry": NO_RETRY} | url.sentinel_settings


def require_master(connection: Any) -> None:
    """Log in; raise ServerUnavailable unless the server is a master.

    What a Sentinel says may be older than a failover. If the user may not send ROLE, this is not checked.
    """
    connection.on_connect()
    connection.send_command("ROLE")
    try:
        role = connection.read_response()[0]
    except NoPermissionError:  # for this user the Sentinel's word has to do
        return
    if role != b"master":
        raise ServerUnavailable("the server is a replica")


def _connection_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the user's connection settings without those that belong to its client."""
    return {
        name: value for name, value in settings.items() if not name.startswith(CLIENT_ONLY_SETTING_PREFIXES)
    }


def _format_addresses(nodes: list[tuple[str, int]]) -> str:
    return ",".join(f"{host}:{port}" if port else host for host, port in nodes)
