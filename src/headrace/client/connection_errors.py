"""Classify redis-py's exceptions, and turn them into errors that say what a user can do.

CONNECTION_ERRORS     the server is lost: open a new connection
AUTH_ERRORS           those of them that no retry can help
UNAVAILABLE_ERRORS    error replies: ask another server, or this one later; nothing was executed
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl

import redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)

from headrace.client.server_errors import command_error
from headrace.client.url import has_password, without_password
from headrace.errors import CommandError, HeadraceError, UnexpectedReply, UsageError

CONNECTION_ERRORS = (
    redis.ConnectionError,
    redis.TimeoutError,
    OSError,
    ClusterError,  # including CLUSTERDOWN
    TryAgainError,
    RedisClusterException,  # no node of a cluster replies, or a slot has no owner at the moment
)
AUTH_ERRORS = (AuthenticationError, AuthorizationError)
CODE_BY_UNAVAILABLE_ERROR: dict[type[Exception], str] = {
    MovedError: "MOVED",
    AskError: "ASK",
    TryAgainError: "TRYAGAIN",
    ClusterDownError: "CLUSTERDOWN",
    BusyLoadingError: "LOADING",
    ReadOnlyError: "READONLY",
    MasterDownError: "MASTERDOWN",
}
UNAVAILABLE_ERRORS = tuple(CODE_BY_UNAVAILABLE_ERROR)
ERROR_REPLY_EXCEPTIONS = (
    ResponseError,
    BusyLoadingError,
    *AUTH_ERRORS,
)  # what redis-py raises for an error reply


# What WAIT returns if the server is, or meanwhile became, a replica.
ROLE_CHANGE_ERROR_PREFIXES = (
    "UNBLOCKED",
    "ERR WAIT cannot be used with replica",
    "ERR writes of this connection may be lost",
)


# By a part of OpenSSL's text.
TLS_ADVICE = {
    "CERTIFICATE_VERIFY_FAILED": "give the authority of the server's certificate: ?ssl_ca_certs=FILE",
    "CERTIFICATE_REQUIRED": "the server requires a certificate: ?ssl_certfile=FILE&ssl_keyfile=FILE",
    "KEY_VALUES_MISMATCH": "ssl_keyfile is not the key of ssl_certfile",
}
TLS_SCHEMES = {"redis": "rediss", "sentinel": "sentinels", "cluster": "clusters"}  # by the scheme without TLS
PLAIN_SCHEMES = {tls: plain for plain, tls in TLS_SCHEMES.items()}


class ServerUnavailable(redis.ConnectionError):
    """Another server must be asked, or the same one later. Nothing was executed; open a new connection."""


def error_reply_text(error: Exception) -> str:
    """Return the text of a server's error reply, code first; redis-py's exceptions may lack the code."""
    code = getattr(error, "status_code", None) or CODE_BY_UNAVAILABLE_ERROR.get(type(error))
    return f"{code} {error}" if code else str(error)


def readonly_error_text(info: object) -> str:
    """Return the error text for a server that replied READONLY; it names the primary if that is known.

    Args:
        info: its reply to INFO replication, as bytes; anything else if it gave none.
    """
    lines = info.decode(errors="replace").splitlines() if isinstance(info, bytes) else []
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    if not found.get("master_host"):
        return "the server is a replica and accepts no writes: use the URL of its primary"
    primary = f"{found['master_host']}:{found.get('master_port', '')}"
    return f"the server is a replica of {primary} and accepts no writes: use the URL of the primary"


def is_role_change_error(reply: object) -> bool:
    """Return whether a reply to WAIT is the error of a server that is a replica."""
    return isinstance(reply, CommandError) and str(reply).startswith(ROLE_CHANGE_ERROR_PREFIXES)


def as_command_error(error: Exception) -> CommandError:
    """Convert redis-py's exception to a CommandError with the server's error code."""
    return command_error(error_reply_text(error))


def cluster_node_error(url: str) -> UsageError:
    """Return the error for a URL of one server that turns out to be a node of a cluster."""
    return UsageError(f"{without_password(url)} is a node of a cluster: use cluster://host:port")


def connection_error(url: str, error: Exception) -> HeadraceError:
    """Return a one-line error for a server that cannot be reached or rejects the client."""
    if isinstance(error, AskError) and not url.startswith("cluster"):  # or MovedError, which is one
        return cluster_node_error(url)
    if isinstance(error, (ResponseError, *AUTH_ERRORS)):
        text = error_reply_text(error)
        if isinstance(error, AUTH_ERRORS) and not has_password(url):
            text += " Give the password: redis://:PASSWORD@host, or redis://USER:PASSWORD@host"
        return HeadraceError(f"{without_password(url)}: the server rejected the request: {text}")
    if isinstance(error, ServerUnavailable):  # it replied
        return HeadraceError(f"{without_password(url)}: {error}")
    if isinstance(error, InvalidResponse):
        return protocol_error(without_password(url), error)
    cause = str(error).removesuffix(".")
    return HeadraceError(f"{without_password(url)}: {cause}; {connection_advice(url, error)}")


def protocol_error(shown: str, error: Exception) -> UnexpectedReply:
    """Return the error for a server that does not speak the Redis protocol; `shown` is its address."""
    return UnexpectedReply(f"{shown} does not speak the Redis protocol: {error}; is it a Redis server?")


def connection_advice(url: str, error: Exception) -> str:
    """Return what to do if no connection to the servers of a URL can be made, because of this error."""
    text = str(error)
    for part, advice in TLS_ADVICE.items():
        if part in text:
            return advice
    scheme = url.partition("://")[0]
    if scheme in PLAIN_SCHEMES:
        if "WRONG_VERSION_NUMBER" in text:
            return f"this port does not use TLS: write {PLAIN_SCHEMES[scheme]}://"
        if "Timeout connecting" in text:  # redis-server waits for the rest of what it takes for a command
            return (
                f"is a server running there? if this port does not use TLS, write {PLAIN_SCHEMES[scheme]}://"
            )
    elif scheme in TLS_SCHEMES and ("Connection closed by server" in text or "Connection reset" in text):
        return f"is a server running there? if its port is for TLS, write {TLS_SCHEMES[scheme]}://"
    if "protocol error, got" in text.lower():  # of a node of a cluster
        return "is it a Redis server?"
    if isinstance(error.__cause__ or error.__context__, FileNotFoundError):
        named = dict(parse_qsl(url.partition("?")[2]))
        for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
            if name in named and not Path(named[name]).exists():
                return f"there is no {named[name]!r}, which the URL names as {name}"
    return "is a server running there? (headrace serve)"


@contextmanager
def explain_connection_errors(url: str) -> Iterator[None]:
    """Convert exceptions of redis-py into connection_error() for `url`."""
    try:
        yield
    except (RedisError, *CONNECTION_ERRORS) as error:
        raise connection_error(url, error) from error
