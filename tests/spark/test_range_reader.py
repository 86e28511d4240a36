"""A range is read once and whole over pages, lost connections and trims, or it says what is lost."""

from __future__ import annotations

import logging
import pathlib
import re
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.client.connection import RawConnection
from headrace.client.servers import Servers
from headrace.errors import CommandError
from headrace.positions.stream_state import last_ids
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.source.adaptive_count import PAGE_BYTES
from headrace.spark.source.data_loss import DataLoss
from headrace.spark.source.planner import OffsetRange
from headrace.spark.source.range_reader import BATCH_BYTES, RangeReader
from support.flaky_proxy import Cut, FlakyProxy
from support.redis_cluster import Node
from support.stream_server import StreamServer

SCHEMA = StructType([StructField("_id", StringType()), StructField("n", LongType())])
COUNT = 23_000  # more than two record batches
LAST = f"{1_000_000 + COUNT - 1}-0"


def batches(server: StreamServer, part: OffsetRange, **options: str) -> Iterator[Any]:
    parsed = parse_options({"url": server.url, **options}, "batch")
    return RangeReader(part, ColumnLayout(SCHEMA, "epoch_ms"), parsed).batches()


def numbers(made: Iterator[Any]) -> list[int]:
    return [n for batch in made for n in batch.column("n").to_pylist()]


@pytest.mark.parametrize("page", ["7", "100", "1000"])
def test_pages_join_without_a_gap_or_an_overlap(stream_server: StreamServer, page: str) -> None:
    stream_server.fill("s", 1000)
    part = OffsetRange("s", "1000099-0", "1000899-0", False)
    assert numbers(batches(stream_server, part, entriesPerFetch=page)) == list(range(100, 900))
    part = OffsetRange("s", "1000099-0", "1000899-0", True)
    assert numbers(batches(stream_server, part, entriesPerFetch=page)) == list(range(100, 900))


def test_an_empty_range_has_no_batch(stream_server: StreamServer) -> None:
    stream_server.fill("s", 10)
    stream_server.client.xtrim("s", maxlen=0, approximate=False)
    assert list(batches(stream_server, OffsetRange("s", "0-0", "1000009-0", False))) == []


def test_entries_trimmed_before_a_task_begins_are_reported(
    stream_server: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    stream_server.fill("s", 1000)
    stream_server.client.xtrim("s", maxlen=500, approximate=False)
    part = OffsetRange("s", "1000099-0", "1000999-0", True)
    with pytest.raises(DataLoss, match=r"'s' after 1000099-0 .* first entry there is 1000500-0"):
        numbers(batches(stream_server, part))
    with caplog.at_level(logging.WARNING):
        assert numbers(batches(stream_server, part, failOnDataLoss="false")) == list(range(500, 1000))
    assert "may have been trimmed" in caplog.text


@pytest.mark.parametrize("trimmed", [0, 1, 99, 100, 101, 150, 999, 1000])
def test_a_loss_is_counted_where_the_number_of_the_first_entry_is_known(
    stream_server: StreamServer, trimmed: int
) -> None:
    stream_server.fill("s", 1000)
    stream_server.client.xtrim("s", maxlen=1000 - trimmed, approximate=False)
    made = batches(stream_server, OffsetRange("s", "1000099-0", "1000999-0", True, 100))
    if trimmed <= 100:
        assert numbers(made) == list(range(100, 1000))
        return
    found = "the stream is empty" if trimmed == 1000 else f"the first entry there is {1_000_000 + trimmed}-0"
    with pytest.raises(DataLoss, match=rf"'s' after 1000099-0 .*\({trimmed - 100} of them\): {found}"):
        numbers(made)


def test_a_loss_is_not_counted_if_entries_after_it_were_deleted(stream_server: StreamServer) -> None:
    stream_server.fill("s", 1000)
    stream_server.client.xtrim("s", maxlen=500, approximate=False)
    stream_server.client.xdel("s", "1000700-0")
    with pytest.raises(DataLoss, match="not known how many"):
        numbers(batches(stream_server, OffsetRange("s", "1000099-0", "1000999-0", True, 100)))


def test_a_recreated_stream_is_a_loss_although_it_counts_from_one(stream_server: StreamServer) -> None:
    stream_server.fill("s", 100)
    stream_server.client.delete("s")
    stream_server.fill("s", 800, first=200)
    with pytest.raises(
        DataLoss, match=r"after 1000099-0 .*not known how many.*first entry there is 1000200-0"
    ):
        numbers(batches(stream_server, OffsetRange("s", "1000099-0", "1000999-0", True, 100)))


def test_a_stream_that_ends_before_the_range_does_is_a_loss(stream_server: StreamServer) -> None:
    stream_server.fill("s", 50)
    with pytest.raises(DataLoss, match=r"after 1000049-0 and up to 1000099-0 are gone.*ends at 1000049-0"):
        numbers(batches(stream_server, OffsetRange("s", "0-0", "1000099-0", False)))
    with pytest.raises(DataLoss, match="does not exist"):
        numbers(batches(stream_server, OffsetRange("none", "0-0", "5-0", False)))
    stream_server.client.xadd("s", {"n": 99}, id="1000099-0")
    stream_server.client.xdel("s", "1000099-0")
    assert numbers(batches(stream_server, OffsetRange("s", "0-0", "1000099-0", False))) == list(range(50))


def test_pages_have_few_large_entries_or_many_small_ones(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def send(wire: RawConnection, *words: bytes | int) -> None:
        asked.append(words[-1])
        send_as_ever(wire, *words)

    send_as_ever = RawConnection.send
    monkeypatch.setattr(RawConnection, "send", send)
    stream_server.fill("small", 5000)
    assert numbers(batches(stream_server, OffsetRange("small", "0-0", "1004999-0", False))) == list(
        range(5000)
    )
    assert asked[0] <= 100 and asked == sorted(asked) and asked[-1] > 4000
    asked.clear()
    for n in range(100):
        stream_server.client.xadd("large", {"n": n, "ballast": bytes(1 << 19)}, id=f"{n + 1}-0")
    made = list(batches(stream_server, OffsetRange("large", "0-0", "100-0", False)))
    assert numbers(iter(made)) == list(range(100))
    assert len(asked) > 3 and set(asked[1:]) == {PAGE_BYTES // ((1 << 19) + 100) + 1}  # and the anchor
    assert max(batch.num_rows for batch in made) <= (BATCH_BYTES >> 19) + 1


def test_a_task_has_one_batch_in_memory_at_a_time(stream_server: StreamServer) -> None:
    entries, size = 120, 1 << 20
    for n in range(entries):
        stream_server.client.xadd("s", {"n": n, "text": b"x" * size}, id=f"{n + 1}-0")
    schema = StructType([*SCHEMA.fields, StructField("text", StringType())])
    options = parse_options({"url": stream_server.url}, "batch")
    reader = RangeReader(
        OffsetRange("s", "0-0", f"{entries}-0", False), ColumnLayout(schema, "epoch_ms"), options
    )
    tracemalloc.start()
    try:
        rows = sum(batch.num_rows for batch in reader.batches())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == entries
    assert peak < 4 * BATCH_BYTES < entries * size


def test_entries_trimmed_during_a_read_are_reported(stream_server: StreamServer) -> None:
    stream_server.fill("s", COUNT)
    for fail in ("true", "false"):
        part = OffsetRange("s", "0-0", LAST, False)
        made = batches(stream_server, part, failOnDataLoss=fail, entriesPerFetch="1000")
        first = next(made).num_rows
        stream_server.client.xtrim("s", maxlen=100 if fail == "true" else 50, approximate=False)
        if fail == "true":
            with pytest.raises(DataLoss):
                list(made)
            stream_server.client.delete("s")
            stream_server.fill("s", COUNT)
        else:
            rest = numbers(made)
            assert rest[-50:] == list(range(COUNT - 50, COUNT)) and first + len(rest) < COUNT


@pytest.mark.parametrize("deleted", [False, True])
def test_a_loss_in_mid_read_is_counted_unless_entries_were_deleted(
    stream_server: StreamServer, deleted: bool
) -> None:
    stream_server.fill("s", COUNT)
    if deleted:
        stream_server.client.xdel("s", "1000005-0")
    made = batches(stream_server, OffsetRange("s", "0-0", LAST, False, 0), entriesPerFetch="1000")
    next(made)
    stream_server.client.xtrim("s", maxlen=100, approximate=False)
    with pytest.raises(DataLoss) as lost:
        list(made)
    after, many, first = re.findall(
        r"after (\d+)-0 .*\((.*)\).*first entry there is (\d+)-0", str(lost.value)
    )[0]
    assert int(first) == 1_000_000 + COUNT - 100
    missing = int(first) - int(after) - 1
    assert many == ("it is not known how many" if deleted else f"{missing} of them")


def test_the_next_page_is_requested_before_this_one_is_decoded(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []

    class Decoder:
        def __init__(self, decoder: Any) -> None:
            self.decoder = decoder

        def __getattr__(self, name: str) -> Any:
            events.append(name)
            return getattr(self.decoder, name)

    def send(wire: RawConnection, *words: bytes | int) -> None:
        events.append("ask")
        send_as_ever(wire, *words)

    send_as_ever = RawConnection.send
    monkeypatch.setattr(RawConnection, "send", send)
    stream_server.fill("s", 9)
    options = parse_options({"url": stream_server.url, "entriesPerFetch": "3"}, "batch")
    reader = RangeReader(
        OffsetRange("s", "0-0", "1000008-0", False), ColumnLayout(SCHEMA, "epoch_ms"), options
    )
    monkeypatch.setattr(reader, "_decoder", Decoder(reader._decoder))
    assert numbers(reader.batches()) == list(range(9))
    asked_and_decoded = [event for event in events if event in ("ask", "decode")]
    assert asked_and_decoded == ["ask", "ask", "decode", "ask", "decode", "decode"]


def test_a_deleted_stream_is_a_loss_and_a_deleted_anchor_is_not(stream_server: StreamServer) -> None:
    stream_server.fill("s", 1000)
    part = OffsetRange("s", "1000099-0", "1000999-0", True)
    stream_server.client.xdel("s", "1000099-0")
    assert numbers(batches(stream_server, part)) == list(range(100, 1000))
    stream_server.client.delete("s")
    with pytest.raises(DataLoss, match="empty or deleted"):
        numbers(batches(stream_server, part))


def test_after_a_lost_connection_no_entry_is_read_twice(stream_server: StreamServer) -> None:
    stream_server.fill("s", COUNT)
    made = batches(stream_server, OffsetRange("s", "0-0", LAST, False), entriesPerFetch="900")
    seen = []
    for batch in made:
        seen += batch.column("n").to_pylist()
        ours = stream_server.client.client_id()
        for client in stream_server.client.client_list():
            if int(client["id"]) != ours:
                stream_server.client.client_kill_filter(_id=client["id"])
    assert seen == list(range(COUNT))


def test_a_reader_stopped_half_way_leaves_no_connection(stream_server: StreamServer) -> None:
    stream_server.fill("s", COUNT)
    before = len(stream_server.client.client_list())
    made = batches(stream_server, OffsetRange("s", "0-0", LAST, False))
    next(made)
    assert len(stream_server.client.client_list()) == before + 1
    made.close()
    stream_server.client.ping()
    assert len(stream_server.client.client_list()) == before


def test_the_error_for_a_key_of_another_type_names_it(stream_server: StreamServer) -> None:
    stream_server.client.set("text", "hello")
    with pytest.raises(CommandError, match=r"WRONGTYPE.*'text'"):
        list(batches(stream_server, OffsetRange("text", "0-0", "5-0", False)))


def test_the_last_id_of_a_stream_remains_after_its_entry_was_deleted(stream_server: StreamServer) -> None:
    stream_server.fill("s", 10)
    stream_server.client.xdel("s", "1000009-0")
    assert last_ids(Servers(stream_server.url), ("none", "s")) == {"s": "1000009-0"}


def test_a_read_waits_for_a_server_that_restarts(tmp_path: pathlib.Path) -> None:
    node, count = Node(tmp_path), 25_000
    pipe = node.client.pipeline(transaction=False)
    for n in range(count):
        pipe.xadd("s", {"n": n}, id=f"{n + 1}-0")
    pipe.execute()
    node.client.save()
    url = f"redis://127.0.0.1:{node.port}"
    options = parse_options({"url": url, "entriesPerFetch": "500"}, "batch")
    layout = ColumnLayout(StructType([StructField("n", LongType())]), "epoch_ms")
    reading = RangeReader(OffsetRange("s", "0-0", f"{count}-0", False), layout, options).batches()
    seen = next(reading).column("n").to_pylist()
    servers = Servers(url)
    assert last_ids(servers, ["s"]) == {"s": f"{count}-0"}
    node.kill()
    restart = threading.Timer(0.5, node.start)
    restart.start()
    for batch in reading:
        seen += batch.column("n").to_pylist()
    assert seen == list(range(count))
    assert last_ids(servers, ["s"]) == {"s": f"{count}-0"}
    restart.join()
    node.kill()


@pytest.mark.parametrize("bytes_until_lost", [300, 500, 5000])
def test_trimmed_entries_are_reported_if_the_connection_is_lost_in_the_page_that_shows_it(
    stream_server: StreamServer, bytes_until_lost: int
) -> None:
    stream_server.fill("s", 5000)
    stream_server.client.xtrim("s", maxlen=3000, approximate=False)
    part = OffsetRange("s", "1000999-0", "1004999-0", True, 1000)
    proxy = FlakyProxy(stream_server.port, [Cut(down=bytes_until_lost)])
    parsed = parse_options({"url": proxy.url}, "batch")
    try:
        with pytest.raises(DataLoss, match=r"1000|1,000"):
            numbers(RangeReader(part, ColumnLayout(SCHEMA, "epoch_ms"), parsed).batches())
    finally:
        proxy.close()
