"""A task of the sink that waits for replicas: it ends when they have its rows, and not before."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.client.connection_errors import ServerUnavailable
from headrace.client.servers import Servers
from headrace.client.topology import Standalone
from headrace.errors import HeadraceError, UsageError
from headrace.spark.sink import replica_wait, sender
from headrace.spark.sink.marker import Marker
from headrace.spark.sink.overwrite import StreamReplacement
from headrace.spark.sink.sender import write_batches
from replication.nodes import Node, nodes
from support.waiting import wait_until

pytestmark = pytest.mark.whole

ROWS = pa.table({"n": list(range(23))})
MARKER = Marker("q", 3, 7)


@pytest.fixture(params=["headrace", pytest.param("redis", marks=pytest.mark.mainly("headrace"))])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Node, Node]]:
    monkeypatch.setattr(sender, "CHUNK_ROWS", 5)
    monkeypatch.setattr(replica_wait, "WAIT_MS", 50)
    with nodes(tmp_path, request.param, request.param) as (primary, replica):
        replica.follow(primary.port)
        replica.wait_for(primary)
        wait_until(lambda: primary.client.role()[2])
        yield primary, replica


def write(primary: Node, marker: Marker | None = MARKER, **options: str) -> int:
    url = f"redis://127.0.0.1:{primary.port}"
    return write_batches(ROWS, url, "s", marker, waitReplicas="1", **options)


def numbers(node: Node) -> list[int]:
    return [int(fields[b"n"]) for _, fields in node.client.xrange("s")]


@pytest.mark.parametrize("marker", [MARKER, None], ids=["exactly once", "at least once"])
def test_the_replica_has_all_rows_when_a_task_ends(pair: tuple[Node, Node], marker: Marker | None) -> None:
    primary, replica = pair
    for attempt in range(1, 6):
        assert write(primary, marker and Marker("q", 3, attempt)) == 23
        assert numbers(replica) == list(range(23)) * attempt


def test_rows_that_no_replica_has_fail_the_task_and_are_not_repeated(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = pair
    replica.process.send_signal(signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Standalone, "reconnect_timeout", 0.2)
            for _ in range(2):  # the second attempt finds the rows of the first one
                with pytest.raises(ServerUnavailable, match="0 of 1 replicas have confirmed them"):
                    write(primary)
                assert numbers(primary) == list(range(5))
        with ThreadPoolExecutor() as threads:
            writing = threads.submit(write, primary)
            wait_until(lambda: primary.client.exists("{s}:headrace:wait"))
            replica.process.send_signal(signal.SIGCONT)
            assert writing.result() == 18
    finally:
        replica.process.send_signal(signal.SIGCONT)
    assert numbers(replica) == list(range(23))


def test_rows_without_a_marker_are_not_sent_again_while_replicas_are_missing(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = pair
    replica.process.send_signal(signal.SIGSTOP)
    try:
        monkeypatch.setattr(Standalone, "reconnect_timeout", 0.2)
        with pytest.raises(ServerUnavailable, match="0 of 1 replicas"):
            write(primary, None)
        assert numbers(primary) == list(range(23))
        monkeypatch.setattr(Standalone, "reconnect_timeout", 60)
        with ThreadPoolExecutor() as threads:
            writing = threads.submit(write, primary, None)
            wait_until(lambda: primary.client.xlen("s") == 46)
            primary.client.client_kill_filter(_type="normal", skipme=True)
            with pytest.raises(HeadraceError, match="before the replicas had confirmed"):
                writing.result()
    finally:
        replica.process.send_signal(signal.SIGCONT)


def test_a_replaced_stream_is_on_the_replica_when_the_write_ends(pair: tuple[Node, Node]) -> None:
    primary, replica = pair
    url = f"redis://127.0.0.1:{primary.port}"
    for number in range(5):
        replacement = StreamReplacement(Servers(url), "s", f"{number}", replicas=1)
        write_batches(ROWS, url, replacement.temporary_stream, Marker(f"job-{number}"))
        replacement.commit(23)
        assert numbers(replica) == list(range(23))
        assert replica.client.xinfo_stream("s") == primary.client.xinfo_stream("s")


def test_a_number_of_replicas_is_checked() -> None:
    with pytest.raises(UsageError, match="waitReplicas is '-1': must be a whole number, 0 or more"):
        sender.sink_options("redis://localhost", "s", {"waitReplicas": "-1"})
