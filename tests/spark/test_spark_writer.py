"""Rows become entries that the source reads back as the same rows."""

from __future__ import annotations

import pathlib
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType, TimestampType

from headrace.client.servers import Servers
from headrace.errors import CommandError, UsageError
from headrace.spark import Marker, write_batches
from headrace.spark.options import parse_options
from headrace.spark.sink.overwrite import StreamReplacement
from headrace.spark.sink.sender import TaskResult
from headrace.spark.sink.writer import HeadraceStreamWriter, HeadraceWriter, TaskCommitMessage
from support.stream_server import StreamServer


def schema(**kinds: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def writer(
    server: StreamServer, kinds: StructType, overwrite: bool = False, **options: str
) -> HeadraceWriter:
    return HeadraceWriter(parse_options({"url": server.url, **options}, "sink"), kinds, overwrite)


def written(server: StreamServer, columns: dict[str, Any], kinds: StructType, **options: str) -> int:
    return writer(server, kinds, **options).write(iter([pa.RecordBatch.from_pydict(columns)])).entries


def test_every_column_becomes_a_field_and_nulls_are_omitted(stream_server: StreamServer) -> None:
    columns = {"a": ["x", None, "z"], "n": [1, 2, None], "_id": ["5-1", "5-2", "6-0"]}
    kinds = schema(a=StringType(), n=LongType(), _id=StringType())
    assert written(stream_server, columns, kinds, stream="out") == 3
    assert stream_server.client.xrange("out") == [
        (b"5-1", {b"a": b"x", b"n": b"1"}),
        (b"5-2", {b"n": b"2"}),
        (b"6-0", {b"a": b"z"}),
    ]


def test_rows_can_name_their_stream_and_have_a_map_of_fields(stream_server: StreamServer) -> None:
    columns = {
        "_stream": ["one", "two", "one"],
        "_fields": pa.array(
            [[("a", "1"), ("b", "2")], [("c", "3")], [("d", "4")]], pa.map_(pa.string(), pa.string())
        ),
        "n": [1, 2, 3],
    }
    kinds = schema(_stream=StringType(), _fields=MapType(StringType(), StringType()), n=LongType())
    assert written(stream_server, columns, kinds) == 3
    assert [fields for _, fields in stream_server.client.xrange("one")] == [
        {b"a": b"1", b"b": b"2", b"n": b"1"},
        {b"d": b"4", b"n": b"3"},
    ]
    assert stream_server.client.xrange("two")[0][1] == {b"c": b"3", b"n": b"2"}


COPY = {
    "stream": ["one", "two"],
    "id": ["5-1", "5-2"],
    "timestamp": pa.array([5000, 5000], pa.timestamp("us", "UTC")),
    "sequence": [1, 2],
    "fields": pa.array([[("a", "1")], [("b", "2")]], pa.map_(pa.string(), pa.string())),
}
COPY_KINDS = schema(
    stream=StringType(),
    id=StringType(),
    timestamp=TimestampType(),
    sequence=LongType(),
    fields=MapType(StringType(), StringType()),
)


def test_rows_with_the_sources_columns_are_copied(stream_server: StreamServer) -> None:
    assert written(stream_server, COPY, COPY_KINDS) == 2
    [(new_id, fields)] = stream_server.client.xrange("one")
    assert fields == {b"a": b"1"} and new_id != b"5-1"
    assert written(stream_server, COPY, COPY_KINDS, stream="both", keepIds="true") == 2
    assert stream_server.client.xrange("both") == [(b"5-1", {b"a": b"1"}), (b"5-2", {b"b": b"2"})]


def test_many_rows_keep_their_order_over_chunks(stream_server: StreamServer) -> None:
    assert written(stream_server, {"n": list(range(5001))}, schema(n=LongType()), stream="out") == 5001
    numbers = [int(fields[b"n"]) for _, fields in stream_server.client.xrange("out")]
    assert numbers == list(range(5001))


def test_a_stream_is_trimmed_while_it_is_written(stream_server: StreamServer) -> None:
    kinds = schema(n=LongType())
    written(stream_server, {"n": list(range(5000))}, kinds, stream="out", maxLength="1000")
    assert 1000 <= stream_server.client.xlen("out") < 1300
    written(stream_server, {"n": list(range(200))}, kinds, stream="out", minId="99999999999999")
    assert stream_server.client.xlen("out") < 150


def test_a_batch_that_runs_again_with_its_query_id_adds_nothing(stream_server: StreamServer) -> None:
    columns, kinds = {"n": list(range(100))}, schema(n=LongType())
    named = {"stream": "out", "delivery": "exactly-once", "queryId": "job 7"}
    assert written(stream_server, columns, kinds, **named) == 100
    assert written(stream_server, columns, kinds, **named) == 0
    assert written(stream_server, columns, kinds, stream="out", delivery="exactly-once") == 100
    assert written(stream_server, columns, kinds, stream="out") == 100
    assert stream_server.client.xlen("out") == 300


def test_two_attempts_of_one_task_add_each_row_once(stream_server: StreamServer) -> None:
    task = writer(stream_server, schema(n=LongType()), stream="out", delivery="exactly-once")
    batch = pa.RecordBatch.from_pydict({"n": list(range(10))})
    assert [task.write(iter([batch])).entries for _ in range(2)] == [10, 0]


def test_overwriting_replaces_the_stream_atomically(stream_server: StreamServer) -> None:
    kinds = schema(n=LongType())
    stream_server.fill("out", 5)
    task = writer(stream_server, kinds, overwrite=True, stream="out")
    message = task.write(iter([pa.RecordBatch.from_pydict({"n": [7, 8]})]))
    again = task.write(iter([pa.RecordBatch.from_pydict({"n": [7, 8]})]))
    assert stream_server.client.xlen("out") == 5
    assert (message.entries, again.entries) == (2, 0)
    task.commit([again])
    assert [fields for _, fields in stream_server.client.xrange("out")] == [{b"n": b"7"}, {b"n": b"8"}]
    assert stream_server.client.ttl("out") == -1
    task = writer(stream_server, kinds, overwrite=True, stream="out")
    task.abort([task.write(iter([pa.RecordBatch.from_pydict({"n": [9]})])), None])
    assert stream_server.client.xlen("out") == 2
    assert not list(stream_server.client.scan_iter("*:new:*", _type="stream"))
    task = writer(stream_server, kinds, overwrite=True, stream="out")
    task.commit([TaskCommitMessage(TaskResult(0, 0))])
    assert not stream_server.client.exists("out")


def test_the_new_stream_is_kept_if_the_reply_to_its_renaming_is_lost(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if this attempt added no entries, because an earlier one had."""
    task = writer(stream_server, schema(n=LongType()), overwrite=True, stream="out")
    task.write(iter([pa.RecordBatch.from_pydict({"n": [7]})]))
    send, lost = StreamReplacement._request, []

    def request(self: StreamReplacement, servers: Servers, *words: bytes) -> object:
        reply = send(self, servers, *words)
        if words[0] == b"RENAME" and not lost:
            lost.append(words)
            raise ConnectionResetError("lost")
        return reply

    monkeypatch.setattr(StreamReplacement, "_request", request)
    task.commit([TaskCommitMessage(TaskResult(0, 1))])
    assert lost and stream_server.client.xlen("out") == 1


def test_an_incomplete_stream_does_not_replace_the_old_one(stream_server: StreamServer) -> None:
    """The server has lost its latest writes in a failover, after a task had ended."""
    stream_server.fill("out", 5)
    task = writer(stream_server, schema(n=LongType()), overwrite=True, stream="out")
    message = task.write(iter([pa.RecordBatch.from_pydict({"n": [7, 8]})]))
    [name] = stream_server.client.scan_iter("*:new:*", _type="stream")
    stream_server.client.xtrim(name, maxlen=1, approximate=False)
    with pytest.raises(CommandError, match="has 1 of 2 rows: the server lost writes"):
        task.commit([message])
    assert stream_server.client.xlen("out") == 5
    trimmed = {"stream": "out", "maxLength": "1"}
    task = writer(stream_server, schema(n=LongType()), overwrite=True, **trimmed)
    task.commit([task.write(iter([pa.RecordBatch.from_pydict({"n": list(range(500))})]))])
    assert 0 < stream_server.client.xlen("out") < 500


@pytest.mark.parametrize("rows", [[1], []])
def test_a_key_of_another_type_is_not_overwritten(stream_server: StreamServer, rows: list[int]) -> None:
    stream_server.client.set("orders", "5")
    task = writer(stream_server, schema(n=LongType()), overwrite=True, stream="orders")
    messages = [task.write(iter([pa.RecordBatch.from_pydict({"n": pa.array(rows, pa.int64())})]))]
    with pytest.raises(CommandError, match="WRONGTYPE The key 'orders' holds a string"):
        task.commit(messages)
    task.abort(messages)
    assert stream_server.client.get("orders") == b"5"


def test_a_table_is_written_without_spark(stream_server: StreamServer) -> None:
    table = pa.table({"n": list(range(50))})
    assert write_batches(table, stream_server.url, "out", Marker("import"), maxLength=1000) == 50
    assert write_batches(table.to_reader(), stream_server.url, "out", Marker("import")) == 0
    assert stream_server.client.xlen("out") == 50


def test_errors_say_why_rows_cannot_be_written(stream_server: StreamServer) -> None:
    n = schema(n=LongType())
    one = {"n": [1]}

    def check_rejected(message: str, kinds: StructType, overwrite: bool = False, **options: str) -> None:
        with pytest.raises(UsageError, match=message):
            writer(stream_server, kinds, overwrite, **options)

    check_rejected("No stream to write to", n)
    check_rejected("_id must be STRING", schema(_id=LongType(), n=LongType()), stream="s")
    check_rejected("_fields must be MAP", schema(_fields=LongType()), stream="s")
    check_rejected("the rows have no ID", n, stream="s", keepIds="true")
    check_rejected("give only one", n, stream="s", minId="5", maxLength="5")
    check_rejected("needs maxLength or minId", n, stream="s", trimPolicy="ACKED")
    named = schema(_stream=StringType(), n=LongType())
    check_rejected("overwrite replaces one stream", named, True, stream="s")
    check_rejected("minId is", n, stream="s", minId="x")
    with pytest.raises(UsageError, match="All columns of a row are null"):
        written(stream_server, {"n": pa.array([None], pa.int64())}, n, stream="s")
    lost = {"_stream": pa.array([None], pa.string()), "n": [1]}
    with pytest.raises(UsageError, match="null in _stream"):
        written(stream_server, lost, schema(_stream=StringType(), n=LongType()))
    with pytest.raises(UsageError, match="only appends"):
        HeadraceStreamWriter(parse_options({"stream": "s"}, "sink"), n, True)
    stream_server.client.set("text", "x")
    with pytest.raises(CommandError, match="WRONGTYPE"):
        written(stream_server, one, n, stream="text")


def test_a_streaming_task_without_query_id_warns_or_fails(stream_server: StreamServer) -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1]})
    options = {"url": stream_server.url, "stream": "out"}
    task = HeadraceStreamWriter(parse_options(options, "sink"), schema(n=LongType()), False)
    with pytest.warns(UserWarning, match="may be written twice"):
        assert task.write(iter([batch])).entries == 1
    options["delivery"] = "exactly-once"
    task = HeadraceStreamWriter(parse_options(options, "sink"), schema(n=LongType()), False)
    with pytest.raises(CommandError, match="write_stream in foreachBatch"):
        task.write(iter([batch]))


def test_all_public_names_of_the_package_can_be_imported() -> None:
    import headrace.spark

    for name in headrace.spark.__all__:
        assert getattr(headrace.spark, name)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = headrace.spark.nothing
    assert pathlib.Path(headrace.spark.__file__).name == "__init__.py"
