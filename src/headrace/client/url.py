"""Server addresses as one URL: a server, a master found through Sentinel, or a cluster.

    redis://[user:password@]host[:port][/db]     rediss:// with TLS      unix:///path[?db=n]
    sentinel://[user:password@]host[:port],…/service[/db]                sentinels:// with TLS
    cluster://[user:password@]host[:port],…                              clusters:// with TLS

`?name=value` sets redis-py's option of that name: ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs …
User and password are for the servers; sentinel_username and sentinel_password are for the Sentinels.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.cluster import RedisCluster
from redis.connection import Connection, ConnectionPool, SSLConnection, parse_url
from redis.sentinel import SentinelConnectionPool

from headrace.errors import UsageError
from headrace.suggestions import suggestion_suffix

DEFAULT_PORTS = {"sentinel": 26379, "cluster": 6379}
RESERVED_CHARACTERS = "/ ? # [ ] @ :"
HOST_AND_PORT_PATTERN = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):\d+(/\d*)?")
URL_FORMS = (
    "redis://host:port, rediss://, unix://path, sentinel://host:port,…/service or cluster://host:port,…"
)


class _WrongSetting(ValueError):
    """A setting after "?" is unknown, or needs TLS."""


@dataclass(frozen=True)
class ServerUrl:
    """A parsed URL.

    Attributes:
        kind: "standalone", "sentinel" or "cluster".
        settings: redis-py's connection settings. They contain the password.
        hosts: (host, port) of the Sentinels or of the cluster's start nodes.
        service: the name of the master that the Sentinels monitor.
        sentinel_settings: connection settings for the Sentinels.
    """

    kind: str
    settings: dict[str, Any] = field(repr=False)  # holds the password
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_settings: dict[str, Any] = field(default_factory=dict, repr=False)


def parse_server_url(url: str) -> ServerUrl:
    """Parse a server URL.

    Raises:
        UsageError: if it has none of the forms above, or a setting that redis-py does not know.
    """
    try:
        scheme, _, rest = url.partition("://")
        kind = scheme.removesuffix("s")
        if kind in DEFAULT_PORTS:
            return _parse_multi_host(kind, scheme != kind, rest)
        settings = parse_url(url)  # type: ignore[no-untyped-call]
        if scheme != "unix":
            _check_database(urlsplit(url).path.removeprefix("/"))
        _check_names(settings, _known_settings(settings.get("connection_class", Connection)))
        return ServerUrl("standalone", settings)
    except _WrongSetting as error:
        after_settings = "@" in url.partition("?")[2]  # then it may be a part of the password
        wrong = f"write {RESERVED_CHARACTERS} of a password as %XX" if after_settings else str(error)
        raise UsageError(f"{without_password(url)}: {wrong}") from None
    except ValueError as error:
        # A password with such characters is split at the wrong place; the text would show a part of it.
        wrong = f"write {RESERVED_CHARACTERS} of a password as %XX" if "@" in url else str(error)
        if HOST_AND_PORT_PATTERN.fullmatch(url):
            raise UsageError(f"{url}: not a server's address; did you mean redis://{url}?") from None
        raise UsageError(
            f"{without_password(url)}: not a server's address ({wrong}); expected {URL_FORMS}"
        ) from None


def without_password(url: str) -> str:
    """Return the URL without user, password and settings, for messages.

    If the password may contain `?` or `@`, the host is ambiguous, and `…` replaces it.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url.rpartition("@")[2].partition("?")[0]
    place = rest.partition("?")[0]
    if "@" in rest and "@" not in place:  # a "?" in the password, or an "@" in a setting
        place = "…"
    return f"{scheme}{mark}{place.rpartition('@')[2]}"


def has_password(url: str) -> bool:
    """Return whether a URL contains a password, before the host or in the settings."""
    login, at, _ = url.partition("://")[2].rpartition("@")
    settings = parse_qsl(url.partition("?")[2])
    return bool(at and ":" in login) or any(name.endswith("password") for name, _ in settings)


def _parse_multi_host(kind: str, tls: bool, rest: str) -> ServerUrl:
    """Parse a URL with several hosts; redis-py parses it as the URL of the first host."""
    rest, mark, query = rest.partition("?")
    place, _, path = rest.partition("/")
    login, at, names = place.rpartition("@")
    service, _, db = path.partition("/")
    _check_database(db)
    if kind == "sentinel" and not service:
        raise ValueError("the name of the service is missing: …/name")
    if kind == "cluster" and path:
        raise ValueError("a cluster has only database 0")
    hosts = tuple(_parse_host_and_port(name, DEFAULT_PORTS[kind]) for name in names.split(","))
    settings: dict[str, Any] = parse_url(f"redis{'s' * tls}://{login}{at}x/{db}{mark}{query}")  # type: ignore[no-untyped-call]
    del settings["host"]
    connection = settings.pop("connection_class", Connection)
    sentinels = {
        name.removeprefix("sentinel_"): settings.pop(name)
        for name in list(settings)
        if name.startswith("sentinel_")
    }
    more = {"cluster": RedisCluster, "sentinel": SentinelConnectionPool}[kind]
    _check_names(settings, _known_settings(connection) | _known_settings(more))
    _check_names(sentinels, _known_settings(connection))
    if tls:
        settings["ssl"] = True
        sentinels |= {name: value for name, value in settings.items() if name.startswith("ssl")}
    return ServerUrl(kind, settings, hosts, unquote(service), sentinels)


@cache
def _known_settings(client: type) -> frozenset[str]:
    """Return the names of the settings that a class of redis-py, or the pool of its connections, takes."""
    return frozenset(
        name
        for each in (client, ConnectionPool)
        for base in each.__mro__
        if "__init__" in vars(base)
        for name in inspect.signature(vars(base)["__init__"]).parameters
    )


def _check_names(settings: dict[str, Any], known: frozenset[str]) -> None:
    """Raise _WrongSetting for a name that redis-py does not know; redis-py raises TypeError, but later."""
    for name in settings:
        if name not in known:
            if name in _known_settings(SSLConnection):
                raise _WrongSetting(f"{name} needs TLS: rediss://, sentinels:// or clusters://")
            raise _WrongSetting(f"unknown setting {name!r}{suggestion_suffix(name, known)}")


def _check_database(text: str) -> None:
    """Raise ValueError for a path that is not a number; redis-py would use database 0."""
    if text and not (text.isascii() and text.isdigit()):
        raise ValueError(f"the database {text!r} is not a number")


def _parse_host_and_port(name: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{name}")
    if not parts.hostname:
        raise ValueError("a host name is missing")
    return parts.hostname, parts.port or port
