"""Where streams are kept, as one URL: a server, the master a Sentinel names, or a cluster.

    redis://[user:password@]host[:port][/db]     rediss:// with TLS      unix:///path[?db=n]
    sentinel://[user:password@]host[:port],…/service[/db]                sentinels:// with TLS
    cluster://[user:password@]host[:port],…                              clusters:// with TLS

`?name=value` sets what redis-py calls so: ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs and more.
User and password are the servers'; a Sentinel's own are sentinel_username and sentinel_password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from redis.connection import parse_url
from redis.exceptions import AskError, RedisError, ResponseError

from headrace.errors import HeadraceError, UsageError
from headrace.retry import HOPELESS, LOST

PORTS = {"sentinel": 26379, "cluster": 6379}
RESERVED = "/ ? # [ ] @ :"
FORMS = "redis://host:port, rediss://, unix://path, sentinel://host:port,…/service or cluster://host:port,…"


@dataclass(frozen=True)
class ServerUrl:
    """A URL taken apart. kind: one, sentinel or cluster; settings: what connections are made with."""

    kind: str
    settings: dict[str, Any] = field(repr=False)  # holds the password
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_settings: dict[str, Any] = field(default_factory=dict, repr=False)


def parse_server_url(url: str) -> ServerUrl:
    """The parts of url. UsageError if it is none of the forms above."""
    try:
        scheme, _, rest = url.partition("://")
        kind = scheme.removesuffix("s")
        if kind in PORTS:
            return _several(kind, scheme != kind, rest)
        return ServerUrl("one", parse_url(url))  # type: ignore[no-untyped-call]
    except ValueError as error:
        # The parser cuts a password with such letters at the wrong place, and would show a part of it.
        wrong = f"write {RESERVED} of a password as %XX" if "@" in url else str(error)
        raise UsageError(
            f"{without_password(url)}: not a server's address ({wrong}); expected {FORMS}"
        ) from None


def node_of_a_cluster(url: str) -> UsageError:
    """What to raise when a server, asked as if it were the only one, says that another has the key."""
    return UsageError(f"{without_password(url)} is a node of a cluster: use cluster://host:port")


def lost(url: str, error: Exception) -> HeadraceError:
    """What to raise when a server is not there, no longer, or says no: one line that says where to look."""
    if isinstance(error, AskError) and not url.startswith("cluster"):  # or MovedError, which is one
        return node_of_a_cluster(url)
    if isinstance(error, (ResponseError, *HOPELESS)):
        return HeadraceError(f"{without_password(url)}: the server refused: {error}")
    return HeadraceError(f"{without_password(url)}: {error}; is a server running there? (headrace serve)")


@contextmanager
def failures_explained(url: str) -> Iterator[None]:
    """Turns what the client library raises into that one line."""
    try:
        yield
    except (RedisError, *LOST) as error:
        raise lost(url, error) from error


def without_password(url: str) -> str:
    """Return the URL as messages may show it; less of it where it is unclear what is the password."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url.rpartition("@")[2].partition("?")[0]
    place = rest.partition("?")[0]
    if "@" in rest and "@" not in place:  # a "?" in the password, or an "@" in a setting
        place = "…"
    return f"{scheme}{mark}{place.rpartition('@')[2]}"


def _several(kind: str, tls: bool, rest: str) -> ServerUrl:
    """The URL of a kind that names several hosts; redis-py reads it as that of the first."""
    rest, mark, query = rest.partition("?")
    place, _, path = rest.partition("/")
    login, at, names = place.rpartition("@")
    service, _, db = path.partition("/")
    if kind == "sentinel" and not service:
        raise ValueError("which service? …/name")
    if kind == "cluster" and path:
        raise ValueError("a cluster has one database")
    hosts = tuple(_host(name, PORTS[kind]) for name in names.split(","))
    settings: dict[str, Any] = parse_url(f"redis{'s' * tls}://{login}{at}x/{db}{mark}{query}")  # type: ignore[no-untyped-call]
    del settings["host"]
    settings.pop("connection_class", None)
    sentinels = {
        name.removeprefix("sentinel_"): settings.pop(name)
        for name in list(settings)
        if name.startswith("sentinel_")
    }
    if tls:
        settings["ssl"] = True
        sentinels |= {name: value for name, value in settings.items() if name.startswith("ssl")}
    return ServerUrl(kind, settings, hosts, unquote(service), sentinels)


def _host(name: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{name}")
    if not parts.hostname:
        raise ValueError("a host has no name")
    return parts.hostname, parts.port or port
