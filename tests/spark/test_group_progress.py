"""A query's progress as a consumer group: position, lag, acknowledgement; its errors never fail a query."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from headrace.positions.position import parse_position
from headrace.spark.options import Options, parse_options
from headrace.spark.source import group_progress
from headrace.spark.source.entry_numbers import EntryNumbers
from headrace.spark.source.group_progress import GroupProgress
from headrace.spark.source.stream_reader import HeadraceStreamReader
from support.redis_server import free_port
from support.stream_server import StreamServer

N = StructType([StructField("n", LongType())])
ALL = ReadAllAvailable()


def options(server: StreamServer, **more: str) -> Options:
    return parse_options({"url": server.url, "subscribe": "s,t", "groupId": "spark", **more}, "stream")


def group(server: StreamServer, stream: str = "s") -> dict[str, Any]:
    [found] = [g for g in server.client.xinfo_groups(stream) if g["name"] == b"spark"]
    return found


def shown(server: StreamServer, stream: str = "s") -> tuple[str, int | None]:
    found = group(server, stream)
    return found["last-delivered-id"].decode(), found["lag"]


def test_the_group_follows_the_query_and_shows_its_lag(stream_server: StreamServer) -> None:
    stream_server.fill("s", 100)
    stream_server.client.xtrim("s", maxlen=90, approximate=False)
    reader = HeadraceStreamReader(
        options(stream_server, startingOffsets="earliest", maxOffsetsPerTrigger="40"), N
    )
    start = reader.initialOffset()
    seen = []
    for _ in range(3):
        end = reader.latestOffset(start, ReadMaxRows(40))
        seen.append(shown(stream_server))
        start = end
    reader.commit(start)
    seen.append(shown(stream_server))
    assert seen == [("0-0", 90), ("1000049-0", 50), ("1000089-0", 10), ("1000099-0", 0)]
    stream_server.fill("s", 5, first=100)
    assert shown(stream_server) == ("1000099-0", 5)
    stream_server.fill("t", 3)
    start = reader.latestOffset(start, ALL)
    assert reader.latestOffset(start, ALL) == start
    assert shown(stream_server) == ("1000104-0", 0) and shown(stream_server, "t") == ("1000002-0", 0)
    reader.stop()


def test_an_existing_group_is_also_moved_back(stream_server: StreamServer) -> None:
    stream_server.fill("s", 10)
    stream_server.client.xgroup_create("s", "spark", "$")
    progress = GroupProgress(options(stream_server), EntryNumbers())
    progress.publish({"s": "1000004-0"})
    assert group(stream_server)["last-delivered-id"] == b"1000004-0"
    progress.publish({"s": "1000009-0"})
    assert group(stream_server)["last-delivered-id"] == b"1000009-0"
    progress.close()


def test_entries_read_is_omitted_unless_it_is_exact(stream_server: StreamServer) -> None:
    stream_server.fill("s", 5000)
    reader = HeadraceStreamReader(options(stream_server), N)
    end = reader.latestOffset({"s": "1000999-0"}, ALL)
    assert shown(stream_server)[1] in (None, 4000), "no lag, or one that the server has counted itself"
    reader.commit(end)
    assert shown(stream_server) == ("1004999-0", 0)
    reader.stop()


def test_no_request_is_sent_if_no_offset_changed(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_server.fill("s", 1)
    progress = GroupProgress(options(stream_server), EntryNumbers())
    progress.publish({"s": "1000000-0"})
    stream_server.client.xgroup_destroy("s", "spark")
    progress.publish({"s": "1000000-0"})
    assert stream_server.client.xinfo_groups("s") == []
    progress.close()


def test_a_deleted_stream_is_not_recreated(
    stream_server: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    progress = GroupProgress(options(stream_server), EntryNumbers())
    progress.publish({"s": "5-0"})
    assert not stream_server.client.exists("s") and not caplog.records
    progress.close()


def test_errors_of_the_group_are_warnings(
    stream_server: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    stream_server.client.set("s", "text")
    stream_server.fill("t", 1)
    progress = GroupProgress(options(stream_server), EntryNumbers())
    progress.publish({"s": "5-0", "t": "1000000-0"})
    assert "'s' cannot be set: WRONGTYPE" in caplog.text
    assert shown(stream_server, "t")[0] == "1000000-0", "the other stream's group is set all the same"
    progress.close()
    gone = parse_options({"url": f"redis://127.0.0.1:{free_port()}", "groupId": "spark"}, "stream")
    progress = GroupProgress(gone, EntryNumbers())
    progress.publish({"s": "5-0"})
    assert "The progress cannot be shown in the group spark" in caplog.text


def test_without_the_option_nothing_happens(stream_server: StreamServer) -> None:
    stream_server.fill("s", 1)
    plain = parse_options({"url": stream_server.url, "subscribe": "s"}, "stream")
    GroupProgress(plain, EntryNumbers()).publish({"s": "1000000-0"})
    assert stream_server.client.xinfo_groups("s") == []


def deliver(server: StreamServer, count: int) -> None:
    server.client.xreadgroup("spark", "other", {"s": ">"}, count=count)


def pending(server: StreamServer) -> list[bytes]:
    found: Any = server.client.xpending_range("s", "spark", "-", "+", 1000)
    return [entry["message_id"] for entry in found]


def test_pending_entries_that_the_query_has_read_are_acknowledged(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_progress, "PENDING_PAGE", 3)
    stream_server.fill("s", 20)
    stream_server.client.xgroup_create("s", "spark", "0")
    deliver(stream_server, 15)
    progress = GroupProgress(options(stream_server, acknowledgeOnCommit="true"), EntryNumbers())
    progress.set_start({"s": "1000001-0"})
    progress.publish({"s": "1000009-0"})
    left = [f"{1_000_000 + n}-0".encode() for n in (0, 1, 10, 11, 12, 13, 14)]
    assert pending(stream_server) == left, "what the query has not read stays pending"
    assert group(stream_server)["last-delivered-id"] == b"1000014-0", "and nothing is taken back"
    progress.publish({"s": "1000019-0"})
    assert pending(stream_server) == left[:2]
    assert group(stream_server)["last-delivered-id"] == b"1000019-0"
    progress.close()


def test_without_the_option_nothing_is_acknowledged(stream_server: StreamServer) -> None:
    stream_server.fill("s", 5)
    stream_server.client.xgroup_create("s", "spark", "0")
    deliver(stream_server, 5)
    progress = GroupProgress(options(stream_server), EntryNumbers())
    progress.set_start({"s": "0-0"})
    progress.publish({"s": "1000004-0"})
    assert len(pending(stream_server)) == 5
    progress.close()


def test_a_query_does_not_acknowledge_entries_before_its_start(stream_server: StreamServer) -> None:
    stream_server.fill("s", 10)
    stream_server.client.xgroup_create("s", "spark", "0")
    deliver(stream_server, 10)
    chosen = options(stream_server, acknowledgeOnCommit="true", startingOffsets='{"s": "1000003-0"}')
    reader = HeadraceStreamReader(chosen, N)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    end = reader.latestOffset(start, ALL)
    reader.commit(end)
    assert start != end and pending(stream_server) == [f"{1_000_000 + n}-0".encode() for n in range(4)]
    reader.stop()


def test_a_query_does_not_fail_if_the_user_may_not_set_the_group(
    stream_server: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    client: Any = redis.Redis(port=stream_server.port)
    try:
        client.execute_command("ACL SETUSER", "reader", "on", ">secret", "~*", "+@read", "+@connection")
    except redis.ResponseError:
        pytest.skip("the server has no users")
    stream_server.fill("s", 3)
    url = f"redis://reader:secret@127.0.0.1:{stream_server.port}"
    chosen = {"url": url, "subscribe": "s", "groupId": "spark", "startingOffsets": "earliest"}
    reader = HeadraceStreamReader(parse_options(chosen, "stream"), N)
    try:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        reader.commit(end)
        assert parse_position(end["s"]).id == "1000002-0"
        assert caplog.text.count("no permissions") == 1, "the warning is not repeated at every micro-batch"
    finally:
        reader.stop()
        client.execute_command("ACL DELUSER", "reader")
