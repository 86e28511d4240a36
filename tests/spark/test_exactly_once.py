"""Each row is added once and in order, despite cut connections, repeated attempts and rejected rows."""

from __future__ import annotations

import pathlib
import random
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
import redis
from redis.crc import key_slot

from headrace.client import retrying
from headrace.companion_keys import companion_key_prefix
from headrace.errors import CommandError, UsageError
from headrace.spark.sink import sender
from headrace.spark.sink.exactly_once import ConfirmedRowsLost
from headrace.spark.sink.marker import Marker, MarkerState
from headrace.spark.sink.sender import write_batches
from support.flaky_proxy import Cut, FlakyProxy
from support.redis_server import free_port
from support.stream_server import StreamServer, start_server

ROWS = 23
MARKER = Marker("q", 3, 7)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five rows a transaction, and no waiting: so a short dialogue has everything in it."""
    monkeypatch.setattr(sender, "CHUNK_ROWS", 5)
    monkeypatch.setattr(retrying, "INITIAL_DELAY_S", 0.001)


def batches(rows: int = ROWS, size: int = 12) -> list[pa.RecordBatch]:
    return pa.table({"n": list(range(rows))}).to_batches(max_chunksize=size)


def numbers(server: StreamServer, stream: str = "s") -> list[int]:
    return [int(fields[b"n"]) for _, fields in server.client.xrange(stream)]


def dialogue(server: StreamServer) -> tuple[int, int]:
    """How many bytes go up and down when nothing is cut."""
    proxy = FlakyProxy(server.port, [])
    assert write_batches(batches(), proxy.url, "s", MARKER) == ROWS
    proxy.close()
    server.client.flushall()
    return tuple(map(max, zip(*proxy.bytes, strict=True)))  # type: ignore[return-value]


def test_no_row_is_lost_or_repeated_wherever_a_connection_is_cut(stream_server: StreamServer) -> None:
    up, down = dialogue(stream_server)
    cuts = [Cut(up=n) for n in range(1, up, 41)] + [Cut(down=n) for n in range(1, down, 23)]
    begun_again = 0
    for i, cut in enumerate(cuts):
        cut.reset = i % 2 == 0
        proxy = FlakyProxy(stream_server.port, [cut])
        write_batches(batches(), proxy.url, "s", MARKER)
        proxy.close()
        assert numbers(stream_server) == list(range(ROWS)), cut
        begun_again += proxy.connections > 1
        stream_server.client.flushall()
    # What a server says of itself varies by some bytes: the last cut may come after the dialogue's end.
    assert begun_again >= len(cuts) - 2


def test_repeatedly_cut_connections_are_repaired(stream_server: StreamServer) -> None:
    up, down = dialogue(stream_server)
    for seed in range(40):
        r = random.Random(seed)
        cuts = [
            Cut(up=r.randrange(1, up)) if r.random() < 0.5 else Cut(down=r.randrange(1, down))
            for _ in range(r.randrange(2, 8))
        ]
        proxy = FlakyProxy(stream_server.port, cuts)
        write_batches(batches(), proxy.url, "s", MARKER)
        proxy.close()
        assert numbers(stream_server) == list(range(ROWS)), seed
        stream_server.client.flushall()


def test_at_least_once_may_repeat_but_loses_nothing(stream_server: StreamServer) -> None:
    for seed in range(20):
        r = random.Random(seed)
        proxy = FlakyProxy(stream_server.port, [Cut(up=r.randrange(1, 1500)), Cut(down=r.randrange(1, 400))])
        write_batches(batches(), proxy.url, "s")
        proxy.close()
        found = numbers(stream_server)
        assert list(dict.fromkeys(found)) == list(range(ROWS)), seed
        stream_server.client.flushall()


class Killed(Exception):
    """Stands for the end of a task."""


def cut_off(after: int, size: int) -> Iterator[pa.RecordBatch]:
    for i, batch in enumerate(batches(size=size)):
        if i == after:
            raise Killed
        yield batch


def test_attempts_continue_after_the_last_one_with_other_batch_sizes(
    stream_server: StreamServer,
) -> None:
    for seed in range(30):
        r = random.Random(seed)
        for _ in range(r.randrange(1, 5)):
            with pytest.raises(Killed):
                write_batches(cut_off(r.randrange(3), r.choice([7, 9, 10])), stream_server.url, "s", MARKER)
        done = stream_server.client.xlen("s")
        size = r.choice([3, 7, 23])
        assert write_batches(batches(size=size), stream_server.url, "s", MARKER) == ROWS - done
        assert numbers(stream_server) == list(range(ROWS)), seed
        assert write_batches(batches(), stream_server.url, "s", MARKER) == 0
        stream_server.client.flushall()


def test_concurrent_attempts_write_each_row_once(stream_server: StreamServer) -> None:
    rows = 500
    for _ in range(3):
        written: list[int] = []

        def run(size: int, written: list[int] = written) -> None:
            written.append(write_batches(batches(rows, size), stream_server.url, "s", MARKER))

        threads = [threading.Thread(target=run, args=(size,)) for size in (13, 50, 17)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert numbers(stream_server) == list(range(rows))
        assert max(written) <= rows <= sum(written)
        stream_server.client.flushall()


def test_rows_after_a_reencoded_chunk_are_those_of_their_batch(
    stream_server: StreamServer,
) -> None:
    """A twin writes a part of a chunk: its rest is encoded again while the next batch is being sent."""
    first, second = batches(60, 30)
    sender_of_all = sender.RowSender(sender.sink_options(stream_server.url, "s", {}), MARKER)
    sender_of_all.send(first)
    while (done := len(numbers(stream_server))) < 25:
        pass
    assert write_batches(batches(60, done + 2)[:1], stream_server.url, "s", MARKER) == 2
    sender_of_all.send(second)
    sender_of_all.flush()
    sender_of_all.close()
    assert numbers(stream_server) == list(range(60))


def test_an_older_batch_is_skipped(stream_server: StreamServer) -> None:
    for batch in (0, 1, 2):
        assert write_batches(batches(), stream_server.url, "s", Marker("q", 0, batch)) == ROWS
    assert write_batches(batches(), stream_server.url, "s", Marker("q", 0, 1)) == 0
    assert write_batches(batches(), stream_server.url, "s", Marker("q", 1, 1)) == ROWS
    assert write_batches(batches(), stream_server.url, "s", Marker("p", 0, 1)) == ROWS
    assert stream_server.client.xlen("s") == 5 * ROWS
    key = Marker("q", 0).key(b"s")
    assert stream_server.client.get(key).startswith(b"2:%d:" % ROWS)
    assert 29 * 86400 < stream_server.client.ttl(key) <= 30 * 86400


def test_rows_of_several_streams_are_counted_for_each(stream_server: StreamServer) -> None:
    streams = [f"s{i % 3}" if i < 15 else "s0" for i in range(ROWS)]
    table = pa.table({"_stream": streams, "n": list(range(ROWS))})
    for seed in range(10):
        r = random.Random(seed)
        cuts = [Cut(up=r.randrange(1, 4000)), Cut(down=r.randrange(1, 1500))]
        proxy = FlakyProxy(stream_server.port, cuts)
        write_batches(table.to_batches(max_chunksize=10), proxy.url, None, MARKER)
        proxy.close()
        for name in ("s0", "s1", "s2"):
            assert numbers(stream_server, name) == [i for i in range(ROWS) if streams[i] == name]
        stream_server.client.flushall()


def test_rows_with_ids_are_written_once_and_wrong_ids_write_nothing(stream_server: StreamServer) -> None:
    table = pa.table({"_id": [f"{i}-1" for i in range(5, 5 + ROWS)], "n": list(range(ROWS))})
    for cut in [Cut(up=n) for n in range(1, 2500, 250)] + [Cut(down=n) for n in range(1, 1200, 120)]:
        proxy = FlakyProxy(stream_server.port, [cut])
        write_batches(table.to_batches(), proxy.url, "s", MARKER)
        proxy.close()
        assert [i for i, _ in stream_server.client.xrange("s")] == [b"%d-1" % i for i in range(5, 5 + ROWS)]
        stream_server.client.flushall()
    stream_server.client.xadd("s", {"n": -1}, id="7-0")
    with pytest.raises(UsageError, match="5-1 is not above 7-0"):
        write_batches(table.to_batches(), stream_server.url, "s", MARKER)
    wrong = {("8-0", "8-0"): "not above 8-0", ("9-0", None): "IDs or none", ("x",): "not an entry ID"}
    for ids, message in wrong.items():
        batch = pa.record_batch({"_id": pa.array(ids, pa.string()), "n": list(range(len(ids)))})
        with pytest.raises(UsageError, match=message):
            write_batches([batch], stream_server.url, "s", MARKER)
    assert numbers(stream_server) == [-1]


def test_nothing_is_written_if_the_key_has_another_type(stream_server: StreamServer) -> None:
    stream_server.client.set("s", "text")
    with pytest.raises(CommandError, match="WRONGTYPE"):
        write_batches(batches(), stream_server.url, "s", MARKER)
    stream_server.client.delete("s")
    assert write_batches(batches(), stream_server.url, "s", MARKER) == ROWS
    assert numbers(stream_server) == list(range(ROWS))


def test_nothing_is_written_if_the_server_lacks_the_trim_policy(
    stream_server: StreamServer,
) -> None:
    options: dict[str, object] = {"maxLength": 100, "trimPolicy": "ACKED"}
    try:
        stream_server.client.execute_command("XTRIM", "none", "MAXLEN", "1", "ACKED")
    except redis.ResponseError:
        with pytest.raises(CommandError, match="does not support trimming by ACKED MAXLEN"):
            write_batches(batches(), stream_server.url, "s", MARKER, **options)
        assert not stream_server.client.keys("*")
        options.pop("trimPolicy")
    assert write_batches(batches(), stream_server.url, "s", MARKER, **options) == ROWS
    assert numbers(stream_server) == list(range(ROWS))


def test_the_marker_is_restored_if_the_stream_was_replaced_by_another_type(
    stream_server: StreamServer,
) -> None:
    def batches_then_another_type() -> Iterator[pa.RecordBatch]:
        yield from batches(10, 10)
        stream_server.client.set("s", "text")
        yield pa.RecordBatch.from_pydict({"n": list(range(10, 20))})
        yield pa.RecordBatch.from_pydict({"n": list(range(20, 30))})

    with pytest.raises(CommandError, match="WRONGTYPE"):
        write_batches(batches_then_another_type(), stream_server.url, "s", MARKER)
    rows_done = int(stream_server.client.get(MARKER.key(b"s")).split(b":")[1])
    assert rows_done < 10, "the marker counts rows that were rejected"
    assert stream_server.client.pttl(MARKER.key(b"s")) > 0


def test_a_marker_that_cannot_be_corrected_is_reported(stream_server: StreamServer) -> None:
    """It counts rows that were rejected, so another attempt would leave them out."""

    client = stream_server.client

    def batch_then_another_type() -> Iterator[pa.RecordBatch]:
        yield from batches(3)
        client.set("s", "text")

    client.acl_setuser("mild", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all", "-del"])
    try:
        url = f"redis://mild:x@127.0.0.1:{stream_server.port}"
        with pytest.raises(CommandError, match=r"WRONGTYPE.* not be corrected: .*'del'.* send DEL \{s\}"):
            write_batches(batch_then_another_type(), url, "s", MARKER)
    finally:
        client.acl_deluser("mild")


@pytest.mark.parametrize("missing", ["multi", "exec", "watch"])
def test_no_row_is_added_without_permission_for_transactions(
    stream_server: StreamServer, missing: str
) -> None:
    """Without MULTI the server would add each row at once, before the marker counts it."""
    client = stream_server.client
    rules = ["reset", "on", ">x", "~*", "+@all", f"-{missing}"]
    client.execute_command("ACL", "SETUSER", "mild", *rules)
    try:
        url = f"redis://mild:x@127.0.0.1:{stream_server.port}"
        for _ in range(2):
            with pytest.raises(CommandError, match=f"^NOPERM .*'{missing}'"):
                write_batches(batches(), url, "s", MARKER)
            assert client.xlen("s") == 0 and client.get(MARKER.key(b"s")) is None
    finally:
        client.acl_deluser("mild")
    assert write_batches(batches(), stream_server.url, "s", MARKER) == ROWS
    assert numbers(stream_server) == list(range(ROWS))


def test_every_attempt_fails_after_rows_were_rejected_within_a_transaction(
    stream_server: StreamServer,
) -> None:
    top = (1 << 64) - 1
    stream_server.client.xadd("s", {"n": -1}, id=f"{top}-{top - 2}")  # two more fit after it
    for _ in range(2):
        with pytest.raises(CommandError, match="exhausted"):
            write_batches(batches(), stream_server.url, "s", MARKER)
    assert numbers(stream_server) == [-1, 0, 1]
    with pytest.raises(CommandError, match="To continue without the rejected rows: SET") as raised:
        write_batches(batches(), stream_server.url, "s", MARKER)
    key, value = str(raised.value).rpartition(" SET ")[2].split()
    stream_server.client.set(key, value)
    stream_server.client.delete("s")
    assert write_batches(batches(), stream_server.url, "s", MARKER) == ROWS - 5
    assert numbers(stream_server) == list(range(5, ROWS))


def test_writing_fails_if_the_server_lost_confirmed_rows(stream_server: StreamServer) -> None:
    def forgetful() -> Iterator[pa.RecordBatch]:
        yield from batches(20, 10)
        stream_server.client.flushall()
        yield pa.RecordBatch.from_pydict({"n": [20, 21, 22]})

    with pytest.raises(ConfirmedRowsLost, match="server confirmed"):
        write_batches(forgetful(), stream_server.url, "s", MARKER)
    write_batches(batches(), stream_server.url, "s", MARKER)
    assert numbers(stream_server) == list(range(ROWS))


def test_a_full_server_adds_all_rows_of_a_transaction_or_none(stream_server: StreamServer) -> None:
    client = stream_server.client
    for batch in range(3):
        write_batches(batches(), stream_server.url, "s", Marker("q", 0, batch))
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(CommandError, match="OOM"):
            write_batches(batches(), stream_server.url, "s", Marker("q", 0, 3))
    finally:
        client.config_set("maxmemory", 0)
    assert numbers(stream_server) == 3 * list(range(ROWS))
    assert write_batches(batches(), stream_server.url, "s", Marker("q", 0, 3)) == ROWS


def test_the_sink_waits_for_a_read_only_server(stream_server: StreamServer) -> None:
    client = stream_server.client
    try:
        client.replicaof("127.0.0.1", "1")
    except redis.ResponseError:
        pytest.skip("this server is never a replica")
    timer = threading.Timer(0.1, lambda: client.replicaof("NO", "ONE"))
    timer.start()
    assert write_batches(batches(), stream_server.url, "s", MARKER) == ROWS
    timer.join()
    assert numbers(stream_server) == list(range(ROWS))


@pytest.mark.parametrize("kind", ["redis", "headrace"])
def test_every_row_is_added_once_although_the_server_is_killed(kind: str, tmp_path: pathlib.Path) -> None:
    """With a log that is written before anything is confirmed.

    redis-server 7.0.15 can fail, rarely: killed in the middle of writing a transaction, it keeps the half in
    its log, and executes it at the second start after that.
    """
    words = ["--appendonly", "yes", "--appendfsync", "always"]
    port = free_port()
    process = start_server(kind, port, tmp_path, *words)
    server = StreamServer(port)

    def batches_between_deaths() -> Iterator[pa.RecordBatch]:
        nonlocal process
        for i, batch in enumerate(batches(1000, 20)):
            if i % 15 == 7:
                process.kill()
                process.wait()
                process = start_server(kind, port, tmp_path, *words)
            yield batch

    try:
        assert write_batches(batches_between_deaths(), server.url, "s", MARKER) == 1000
        assert numbers(server) == list(range(1000))
    finally:
        process.kill()
        process.wait()


def test_a_marker_contains_the_rows_of_its_batch() -> None:
    digest = 0xD1CE
    assert MARKER.parse_state(None, b"s") == MarkerState()
    assert MARKER.parse_state(MARKER.value(12, digest), b"s") == MarkerState(12, digest)
    before = Marker("q", 3, 6).value(5, digest)
    assert MARKER.parse_state(before, b"s") == MarkerState(batch_before=before)
    assert MARKER.parse_state(MARKER.value(12, 1, before), b"s") == MarkerState(12, 1, False, before)
    after = Marker("q", 3, 8).value(9, 2, MARKER.value(12, digest))
    assert MARKER.parse_state(after, b"s") == MarkerState(12, digest, is_final=True)
    assert MARKER.parse_state(b"7:12", b"s") == MarkerState(12, None), "of a version without digests"
    assert MARKER.parse_state(b"6:12", b"s") == MarkerState()
    for later in (b"8:0", b"9:0:%016x:8:1:%016x" % (1, 2)):
        with pytest.raises(CommandError, match="the query 'q' already, so batch 7 is not written"):
            MARKER.parse_state(later, b"s")
    for odd in (b"", b"7", b"7:", b"x:1", b"7:-1"):
        with pytest.raises(CommandError, match="not a marker"):
            MARKER.parse_state(odd, b"s")
    for reason in (b"7:12:2 of rows 5 to 9", MARKER.error_value(12, 1, "2 of rows 5 to 9")):
        with pytest.raises(CommandError, match="in part: 2 of rows 5 to 9"):
            MARKER.parse_state(reason, b"s")


def test_a_markers_key_is_in_the_slot_of_its_stream() -> None:
    for stream in (b"s", b"{a}b", b"x{a}", b"a{b", b"{a}{b}", "ü".encode()):
        assert key_slot(MARKER.key(stream)) == key_slot(stream), stream
        assert key_slot(companion_key_prefix(stream)) == key_slot(stream)


def test_no_two_streams_share_their_keys() -> None:
    streams = [b"o", b"{o}", b"{o}:", b"{{o}}", b"x{o}", b"{}", b"{}o", b"o}", b"{o", b""]
    assert len({companion_key_prefix(stream) for stream in streams}) == len(streams)
