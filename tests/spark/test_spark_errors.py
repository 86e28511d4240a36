"""What a Spark user sees when a read or a write cannot be done: one sentence, first or last."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.loading.loader import BadRowError
from headrace.spark import HeadraceSource, explain
from headrace.spark.errors import HIDE_TRACEBACK_VARIABLE, as_headrace_error
from headrace.spark.sink.requested_ids import RowIdTooSmall
from support.stream_server import StreamServer

NOWHERE = "redis://127.0.0.1:1"


def batch(spark: SparkSession, **options: Any) -> None:
    spark.read.format("headrace").options(**options).load().collect()


def follow(spark: SparkSession, checkpoint: pathlib.Path, sink: dict[str, Any], **options: Any) -> None:
    rows = spark.readStream.format("headrace").option("startingOffsets", "earliest").options(**options).load()
    writer = rows.writeStream.format("headrace" if sink else "noop").options(**sink)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def failure(work: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:
        work()
    return caught.value


def check_shown(error: Exception, kind: str, sentence: str) -> None:
    """The sentence is in the first two lines of Spark's message, and no Python traceback is."""
    text = str(error)
    first = " ".join(text.splitlines()[:2])
    assert sentence in first and kind in first, text
    assert "Traceback" not in text and 'File "' not in text
    assert explain(error) == sentence.strip() or sentence in explain(error)
    assert "\n" not in explain(error) and "SQLSTATE" not in explain(error)


@pytest.mark.slow
@pytest.mark.whole
def test_a_failed_batch_read_gives_the_reason_in_one_line(
    spark: SparkSession, headrace_server: StreamServer
) -> None:
    url = headrace_server.url
    headrace_server.client.set("text", "x")
    headrace_server.client.xadd("typed", {"n": "pear"})
    unknown = failure(lambda: batch(spark, url=url, subscrib="s"))
    check_shown(unknown, "UsageError", "Unknown option 'subscrib'. Did you mean subscribe?")
    wrong = failure(lambda: batch(spark, url=url, subscribe="text"))
    check_shown(wrong, "StreamReadError", "Cannot read the stream 'text': WRONGTYPE")
    strict = spark.read.format("headrace").options(url=url, subscribe="typed", mode="FAILFAST")
    error = failure(lambda: strict.schema("n int").load().collect())
    check_shown(error, "MalformedEntry", "stream 'typed', entry ")


@pytest.mark.slow
@pytest.mark.whole
def test_the_error_for_a_missing_server_names_it_and_what_to_do(spark: SparkSession) -> None:
    write = spark.range(1).write.format("headrace").option("url", NOWHERE).option("stream", "s")
    for work in (lambda: batch(spark, url=NOWHERE, subscribe="s"), lambda: write.mode("append").save()):
        error = failure(work)
        check_shown(error, "HeadraceError", "127.0.0.1:1. Connection refused")
        assert "is a server running there? (headrace serve)" in explain(error)


@pytest.mark.slow
@pytest.mark.whole
def test_a_failed_streaming_query_gives_the_reason_in_its_first_line(
    spark: SparkSession, headrace_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    client, url = headrace_server.client, headrace_server.url
    client.set("text", "x")
    client.xadd("s", {"n": 1})
    unknown = failure(lambda: follow(spark, tmp_path / "a", {}, url=url, subscrib="s"))
    check_shown(unknown, "UsageError", "Unknown option 'subscrib'. Did you mean subscribe?")
    wrong = failure(lambda: follow(spark, tmp_path / "b", {}, url=url, subscribe="text"))
    check_shown(wrong, "StreamReadError", "Cannot read the stream 'text': WRONGTYPE")
    sink = {"url": url, "strem": "copy"}
    unknown = failure(lambda: follow(spark, tmp_path / "c", sink, url=url, subscribe="s"))
    check_shown(unknown, "UsageError", "Unknown option 'strem'. Did you mean stream?")
    sink = {"url": url, "stream": "text"}
    wrong = failure(lambda: follow(spark, tmp_path / "d", sink, url=url, subscribe="s"))
    check_shown(wrong, "CommandError", "WRONGTYPE")
    assert "'text'" in explain(wrong)


@pytest.mark.slow
@pytest.mark.whole
def test_lost_entries_are_reported_in_the_first_line_of_the_error(
    spark: SparkSession, headrace_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    client, url = headrace_server.client, headrace_server.url
    client.xadd("lost", {"n": 1}, id="5-1")
    follow(spark, tmp_path / "a", {}, url=url, subscribe="lost")
    client.delete("lost")
    client.xadd("lost", {"n": 1}, id="1-1")
    error = failure(lambda: follow(spark, tmp_path / "a", {}, url=url, subscribe="lost"))
    check_shown(error, "DataLoss", "the stream 'lost' was deleted")


@pytest.mark.slow
@pytest.mark.whole
def test_the_error_for_a_rejected_write_names_the_stream(
    spark: SparkSession, headrace_server: StreamServer
) -> None:
    headrace_server.client.set("text", "x")
    write = spark.range(1).write.format("headrace").option("url", headrace_server.url)
    error = failure(lambda: write.option("stream", "text").mode("append").save())
    check_shown(error, "CommandError", "(adding entries to the stream 'text')")


def test_the_sentence_is_found_in_the_errors_of_spark() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 4b4b, runId = 9920] terminated with exception: [PYTHON_X] Failed: "
        "headrace.errors.UsageError: no option 'a': say b. SQLSTATE: 38000 SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nLogical Plan:\n"
    )
    assert explain(RuntimeError(text)) == "no option 'a': say b."
    assert type(as_headrace_error(RuntimeError(text))) is UsageError
    other = text.replace("errors.UsageError", "spark.source.data_loss.DataLoss")
    assert type(as_headrace_error(RuntimeError(other))) is HeadraceError
    subclasses = UsageError.__subclasses__()
    assert {RowIdTooSmall, BadRowError} <= set(subclasses)
    for kind in subclasses:
        subclass = text.replace("headrace.errors.UsageError", f"{kind.__module__}.{kind.__name__}")
        assert type(as_headrace_error(RuntimeError(subclass))) is UsageError
    sparks = RuntimeError("[TABLE_OR_VIEW_NOT_FOUND] no table t. SQLSTATE: 42P01; line 1\n'Project [*]")
    assert str(as_headrace_error(sparks)).startswith("Spark: [TABLE_OR_VIEW_NOT_FOUND] no table t.")
    missing = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: headrace. Make sure"
    assert "headrace.spark.register(spark)" in explain(RuntimeError(missing))
    assert explain(RuntimeError("")) == "RuntimeError"


def test_a_batch_read_warns_of_a_missing_stream(
    headrace_server: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    headrace_server.client.xadd("here", {"n": 1})
    options = {"url": headrace_server.url, "subscribe": "here,nope"}
    schema = StructType([StructField("n", LongType())])
    assert len(HeadraceSource(options).reader(schema).partitions()) >= 1
    assert [record.message for record in caplog.records] == [
        "There is no stream 'nope': a batch read of it has no rows."
    ]


def test_outside_of_a_worker_errors_do_not_change_the_environment() -> None:
    with pytest.raises(UsageError, match="subscrib"):
        HeadraceSource({"subscrib": "s"}).streamReader(None)  # type: ignore[arg-type]
    assert HIDE_TRACEBACK_VARIABLE not in os.environ
