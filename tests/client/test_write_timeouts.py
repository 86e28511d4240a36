"""Waiting for the reply to a write, and what is reported if none arrives."""

from __future__ import annotations

import pytest

from headrace.client import write_timeouts
from headrace.client.servers import Servers


def test_a_reply_that_does_not_arrive_in_time_is_a_timeout(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_timeouts, "REPLY_PROBE_S", 0.01)
    monkeypatch.setattr(write_timeouts, "SOCKET_TIMEOUT_S", 0.05)
    with Servers(server_url) as servers:
        connection = servers.open_raw("s")
        with pytest.raises(TimeoutError, match=r"^no reply for 0\.05 seconds"):  # nothing was sent
            write_timeouts.wait_for_reply(connection, servers, "s")
        connection.send(b"PING")
        write_timeouts.wait_for_reply(connection, servers, "s")
        assert connection.receive(bytearray(64)) == len(b"+PONG\r\n")
        connection.close()
