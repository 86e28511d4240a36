"""redis-py's own clients of the servers at a URL.

redis://, rediss://, unix://   one server
sentinel://                    the master that the Sentinels name
cluster://                     a cluster
"""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel

from headrace.client.url import ServerUrl, parse_server_url
from headrace.errors import UsageError


def redis_client(url: ServerUrl, **settings: Any) -> Any:
    """Return a client of the servers at a URL. `settings` are redis-py's; they override those of the URL."""
    settings = url.settings | settings
    if url.kind == "sentinel":
        sentinels = redis.sentinel.Sentinel(url.hosts, sentinel_kwargs=url.sentinel_settings)  # type: ignore[no-untyped-call]
        return sentinels.master_for(url.service, **settings)  # type: ignore[no-untyped-call]
    if url.kind == "cluster":
        nodes = [redis.cluster.ClusterNode(*host) for host in url.hosts]  # type: ignore[no-untyped-call]
        return redis.cluster.RedisCluster(startup_nodes=nodes, **settings)
    return redis.Redis.from_pool(redis.ConnectionPool(**settings))


def redis_client_of(server: Any, **settings: Any) -> Any:
    """Return redis-py's client of a server.

    Args:
        server: the URL, or the client, that connect() was given. A client is returned as it is.
        settings: redis-py's, for a URL.

    Raises:
        UsageError: if `server` is a client, and there are settings.
    """
    if isinstance(server, str):
        return redis_client(parse_server_url(server), **settings)
    if settings:
        raise UsageError("connect() was given a client: it keeps the settings that it has")
    return server


def async_client(server: Any, **settings: Any) -> Any:
    """Return a client of redis.asyncio for the URL that connect() was given.

    Raises:
        UsageError: if connect() was given a client instead.
    """
    if not isinstance(server, str):
        raise UsageError("async_client() needs the server's URL: connect() was given a client")
    url = parse_server_url(server)
    if url.kind == "sentinel":
        sentinels = redis.asyncio.sentinel.Sentinel(url.hosts, sentinel_kwargs=url.sentinel_settings)  # type: ignore[no-untyped-call]
        return sentinels.master_for(url.service, **url.settings | settings)
    if url.kind == "cluster":
        nodes = [redis.asyncio.cluster.ClusterNode(*host) for host in url.hosts]
        return redis.asyncio.cluster.RedisCluster(startup_nodes=nodes, **url.settings | settings)
    return redis.asyncio.Redis.from_url(server, **settings)
