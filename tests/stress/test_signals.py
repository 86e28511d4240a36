"""SIGTERM ends the server whenever it comes."""

from __future__ import annotations

import socket

import pytest

pytestmark = pytest.mark.whole


def test_a_signal_just_before_the_wait_is_handled(launch, shim, tmp_path):
    """The loop has checked for signals and is about to wait without a timeout: the signal comes in between.

    Only a server without a log waits that way: with one it checks the files of the log every second.
    """
    moment = tmp_path / "moment"
    server = launch("--appendonly", "no", **shim("late_signal"), LATE_SIGNAL_FILE=str(moment))
    client = server.client()
    moment.touch()
    assert client.ask("PING") == "PONG"  # and after it the server waits for the next request
    assert server.child.wait(30) == 0


def test_a_scraper_that_stalls_does_not_hold_the_end_up(launch):
    server = launch("--metrics-port", "free")
    client = server.client()
    _, port = client.ask("CONFIG GET metrics-port")
    with socket.create_connection(("127.0.0.1", int(port))) as scraper:
        scraper.sendall(b"GET /metr")
        assert server.end() == 0
