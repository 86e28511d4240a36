"""URLs of servers are understood, with TLS and passwords; no message shows a password."""

from __future__ import annotations

import re

import pytest

from headrace.client.servers import Servers
from headrace.client.url import parse_server_url, without_password
from headrace.errors import UsageError


def test_a_url_names_one_server_a_service_or_a_cluster() -> None:
    one = parse_server_url("rediss://me:p%40ss@h:1/3?ssl_cert_reqs=none")
    assert one.kind == "standalone" and one.settings["password"] == "p@ss" and one.settings["db"] == 3
    service = parse_server_url(
        "sentinel://me:p%40ss@a,b:2,[::1]:3/orders/4?sentinel_password=other&client_name=x"
    )
    assert (service.kind, service.service) == ("sentinel", "orders")
    assert service.hosts == (("a", 26379), ("b", 2), ("::1", 3))
    assert service.settings == {"username": "me", "password": "p@ss", "db": 4, "client_name": "x"}
    assert service.sentinel_settings == {"password": "other"}
    cluster = parse_server_url("clusters://a:1,b?ssl_ca_certs=/x/ca.pem&socket_timeout=2.5")
    assert (cluster.kind, cluster.hosts) == ("cluster", (("a", 1), ("b", 6379)))
    assert cluster.settings == {"ssl": True, "ssl_ca_certs": "/x/ca.pem", "socket_timeout": 2.5}
    assert parse_server_url("unix:///tmp/s?db=2").settings["path"] == "/tmp/s"
    assert parse_server_url("sentinels://a/s").sentinel_settings == {"ssl": True}


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://h",
        "sentinel://a:1",
        "sentinel:///s",
        "cluster://a:1/3",
        "cluster://a:port",
        "cluster://",
        "redis://h/orders",
        "redis://h/1/2",
        "sentinel://a/s/orders",
        "",
    ],
)
def test_what_is_no_url_of_a_server_is_refused_without_a_connection(url: str) -> None:
    with pytest.raises(UsageError, match="not a server's address"):
        Servers(url)


def test_no_message_shows_a_password() -> None:
    assert without_password("sentinel://me:secret@a:1,b:2/s?sentinel_password=x") == "sentinel://a:1,b:2/s"
    assert "secret" not in repr(Servers("redis://:secret@h:1/2"))
    assert "secret" not in repr(parse_server_url("cluster://:secret@h:1"))
    with pytest.raises(UsageError) as refused:
        Servers("cluster://me:secret@h:port")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://h?socket_timeoutt=3", "unknown setting 'socket_timeoutt'; did you mean 'socket_timeout'?"),
        ("rediss://me:secret@h?ssl_ca_cert=x", "unknown setting 'ssl_ca_cert'; did you mean 'ssl_ca_certs'?"),
        ("sentinel://a/s?sentinel_user=x", "unknown setting 'user'; did you mean 'username'?"),
        ("cluster://a?require_full_cover=no", "did you mean 'require_full_coverage'?"),
        ("redis://h?ssl_certfile=x", "ssl_certfile needs TLS"),
        ("redis://:pa?sec=ret@h", "of a password as %XX"),
    ],
)
def test_a_setting_that_nobody_knows_is_refused_without_a_connection(url: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        Servers(url)
    assert problem in str(refused.value) and "sec" not in str(refused.value)


@pytest.mark.parametrize("place", ["127.0.0.1:22000", "localhost:7777", "[::1]:7777", "db-1.example:6379/2"])
def test_a_host_and_port_are_completed_in_the_message(place: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"did you mean redis://{place}?") + "$"):
        parse_server_url(place)
