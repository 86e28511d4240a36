"""A batch that is repeated with other rows, in another order or in other partitions adds nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.spark.sink import attempts, sender
from headrace.spark.sink.attempts import check_repeated_batch
from headrace.spark.sink.batch_attempt import AttemptSuperseded, RowsChanged
from headrace.spark.sink.marker import Marker
from headrace.spark.sink.sender import (
    RowSender,
    TaskResult,
    send_batches_of_task,
    sink_options,
    write_batches,
)
from support.stream_server import StreamServer

MARKER = Marker("q", 0, 7)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five rows a transaction, and short waiting."""
    monkeypatch.setattr(sender, "CHUNK_ROWS", 5)
    monkeypatch.setattr(attempts, "POLL_S", 0.01)
    monkeypatch.setattr(attempts, "PROGRESS_TIMEOUT_S", 0.3)


class Killed(Exception):
    """Stands for the end of a task."""


def batches(numbers: Iterable[int], killed_after: int | None = None) -> Iterator[pa.RecordBatch]:
    rows = list(numbers)
    for at in range(0, len(rows), 10):
        if killed_after is not None and at >= killed_after:
            raise Killed
        yield pa.RecordBatch.from_pydict({"n": rows[at : at + 10]})


def numbers(server: StreamServer, stream: str = "s") -> list[int]:
    return [int(fields[b"n"]) for _, fields in server.client.xrange(stream)]


def task(
    server: StreamServer, execution: str, partition: int, rows: Iterable[int], killed_after: int | None = None
) -> TaskResult:
    """Run one task of an execution of batch 7."""
    options = sink_options(server.url, "s", {})
    return send_batches_of_task(
        batches(rows, killed_after), options, Marker("q", partition, 7, execution=execution)
    )


def send_and_flush(rows: RowSender, numbers: Iterable[int]) -> None:
    rows.send(pa.RecordBatch.from_pydict({"n": list(numbers)}))
    rows.flush()


def kill(server: StreamServer, execution: str, partition: int, rows: Iterable[int], after: int = 20) -> None:
    with pytest.raises(Killed):
        task(server, execution, partition, rows, after)


CHANGED: dict[str, list[int]] = {
    "a row that was written is gone": [n for n in range(50) if n != 3],
    "two rows that were written are swapped": [0, 2, 1, *range(3, 50)],
    "a row came in between": [0, -1, *range(1, 50)],
    "a value is another one": [100, *range(1, 50)],
    "all rows are other ones": list(range(100, 150)),
    "there are fewer rows than were written": list(range(9)),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_retry_with_other_rows_fails_and_adds_nothing(stream_server: StreamServer, change: str) -> None:
    with pytest.raises(Killed):
        write_batches(batches(range(50), 30), stream_server.url, "s", MARKER)
    written = numbers(stream_server)
    assert 10 <= len(written) <= 30
    with pytest.raises(RowsChanged, match=r"(?s)partition 0 had \d+ rows, and now.* delete the keys"):
        write_batches(batches(CHANGED[change]), stream_server.url, "s", MARKER)
    assert numbers(stream_server) == written
    write_batches(batches(range(50)), stream_server.url, "s", MARKER)
    assert numbers(stream_server) == list(range(50))


def test_rows_that_change_after_the_written_ones_are_accepted(stream_server: StreamServer) -> None:
    with pytest.raises(Killed):
        write_batches(batches(range(50), 30), stream_server.url, "s", MARKER)
    done = len(numbers(stream_server))
    again = [*range(done), *range(100, 120)]
    write_batches(batches(again), stream_server.url, "s", MARKER)
    assert numbers(stream_server) == again


def test_trimming_can_change_between_two_attempts(stream_server: StreamServer) -> None:
    with pytest.raises(Killed):
        write_batches(batches(range(50), 30), stream_server.url, "s", MARKER)
    write_batches(batches(range(50)), stream_server.url, "s", MARKER, maxLength=1000)
    assert numbers(stream_server) == list(range(50))


def test_nulls_names_and_borders_of_rows_belong_to_the_digest(stream_server: StreamServer) -> None:
    def rows(**columns: list[str | None]) -> list[pa.RecordBatch]:
        return [pa.RecordBatch.from_pydict({k: pa.array(v, pa.string()) for k, v in columns.items()})]

    first = rows(a=["x", None], b=["y", "z"])
    write_batches(first, stream_server.url, "s", MARKER)
    assert write_batches(first, stream_server.url, "s", MARKER) == 0
    for other in (
        rows(a=["x", "z"], b=["y", None]),
        rows(a=["x", None], c=["y", "z"]),
        rows(a=["xy", None], b=["", "z"]),
        rows(a=["x", ""], b=["y", "z"]),
    ):
        with pytest.raises(RowsChanged):
            write_batches(other, stream_server.url, "s", MARKER)
    assert stream_server.client.xlen("s") == 2


def test_a_concurrent_attempt_with_other_rows_fails(stream_server: StreamServer) -> None:
    """A speculative twin reads its rows in another order, and both have written none when they begin."""
    options = sink_options(stream_server.url, "s", {})
    twin = RowSender(options, MARKER)
    twin.send(pa.RecordBatch.from_pydict({"n": list(range(5))}))
    write_batches(batches(range(100, 115)), stream_server.url, "s", MARKER)
    with pytest.raises(RowsChanged, match="another attempt of partition 0 has written"):
        send_and_flush(twin, range(5, 40))
    twin.close()
    found = numbers(stream_server)
    assert found in (list(range(100, 115)), list(range(5)))


def test_a_batch_before_the_last_one_is_compared_and_skipped(stream_server: StreamServer) -> None:
    """A checkpoint that lost its last commit repeats a batch after the next one was begun."""
    for batch in (0, 1):
        write_batches(batches(range(20)), stream_server.url, "s", Marker("q", 0, batch))
    assert write_batches(batches(range(20)), stream_server.url, "s", Marker("q", 0, 0)) == 0
    with pytest.raises(RowsChanged, match="now these have other contents"):
        write_batches(batches(range(1, 21)), stream_server.url, "s", Marker("q", 0, 0))
    with pytest.raises(RowsChanged, match="a later batch was begun, and there are rows"):
        write_batches(batches(range(25)), stream_server.url, "s", Marker("q", 0, 0))
    write_batches(batches(range(20)), stream_server.url, "s", Marker("q", 0, 2))
    with pytest.raises(CommandError, match="has batch 2 of the query 'q' already"):
        write_batches(batches(range(20)), stream_server.url, "s", Marker("q", 0, 0))
    assert numbers(stream_server) == 3 * list(range(20))


def test_a_marker_without_digest_is_trusted_if_all_rows_are_written(stream_server: StreamServer) -> None:
    client = stream_server.client
    for n in range(20):
        client.xadd("s", {"n": n})
    client.set(MARKER.key(b"s"), "7:20")
    assert write_batches(batches(range(20)), stream_server.url, "s", MARKER) == 0
    for rows, reason in ((21, "an earlier version of Headrace wrote 20 rows"), (19, "now has 19")):
        with pytest.raises(RowsChanged, match=reason):
            write_batches(batches(range(rows)), stream_server.url, "s", MARKER)
    assert numbers(stream_server) == list(range(20))
    assert write_batches(batches(range(5)), stream_server.url, "s", Marker("q", 0, 8)) == 5


def test_an_execution_continues_where_the_one_before_it_was_killed(stream_server: StreamServer) -> None:
    parts = [range(40), range(40, 80), range(80, 120)]
    task(stream_server, "first", 0, parts[0])
    kill(stream_server, "first", 1, parts[1])
    results = [task(stream_server, "second", n, rows) for n, rows in enumerate(parts)]
    assert sorted(numbers(stream_server)) == list(range(120))
    assert results[0].added == 0 and results[2].added == 40
    assert all(result.repeated_streams == ("s",) for result in results)
    options = sink_options(stream_server.url, "s", {})
    check_repeated_batch(options.servers(), Marker("q", 0, 7, execution="second"), ["s"])
    assert task(stream_server, "third", 2, parts[2]).added == 0


def test_no_task_adds_rows_before_all_partitions_were_found_again(stream_server: StreamServer) -> None:
    """As with rand() before the sink: the third task was not begun by the execution that was killed."""
    kill(stream_server, "first", 0, range(40))
    kill(stream_server, "first", 1, range(40, 80))
    written = numbers(stream_server)
    errors: list[Exception] = []

    def run(partition: int, rows: Iterable[int]) -> None:
        try:
            task(stream_server, "second", partition, rows)
        except HeadraceError as error:
            errors.append(error)

    waiting = threading.Thread(target=run, args=(2, range(30, 60)))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive() and numbers(stream_server) == written
    run(1, range(80, 120))
    waiting.join()
    assert [type(error) for error in errors] == [RowsChanged, RowsChanged]
    assert "partition 1 had" in str(errors[1]), "the tasks give the same reason"
    assert numbers(stream_server) == written
    with pytest.raises(RowsChanged):
        task(stream_server, "second", 0, range(40))
    for n in range(2):
        task(stream_server, "third", n, range(40 * n, 40 * n + 40))
    assert sorted(numbers(stream_server)) == list(range(80))


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_a_batch_in_other_partitions_adds_nothing(stream_server: StreamServer, partitions: int) -> None:
    for n in range(3):
        task(stream_server, "first", n, range(20 * n, 20 * n + 20))
    errors = 0
    size = 60 // partitions
    threads = []

    def run(n: int) -> None:
        nonlocal errors
        try:
            task(stream_server, "second", n, range(size * n, size * n + size))
        except RowsChanged:
            errors += 1

    for n in range(partitions):
        threads.append(threading.Thread(target=run, args=(n,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert errors == partitions
    assert sorted(numbers(stream_server)) == list(range(60))


def test_a_commit_fails_if_a_partition_does_not_exist_any_more(stream_server: StreamServer) -> None:
    for n in range(2):
        task(stream_server, "first", n, range(20 * n, 20 * n + 20))
    assert task(stream_server, "second", 0, range(20)).repeated_streams == ("s",)
    options = sink_options(stream_server.url, "s", {})
    with pytest.raises(RowsChanged, match="partitions 1 had rows, and do not exist any more"):
        check_repeated_batch(options.servers(), Marker("q", 0, 7, execution="second"), ["s"])


def test_a_task_does_not_wait_for_ever_for_others(
    stream_server: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The others may need its place on the cluster. Only one of several tasks waits for the whole time."""
    kill(stream_server, "first", 3, range(60, 100))
    assert task(stream_server, "second", 0, range(20)).added == 20
    assert task(stream_server, "second", 1, range(20, 40)).added == 20
    assert caplog.text.count("partitions 3, which had rows for s, were not read again") == 1
    assert task(stream_server, "second", 3, range(60, 100)).added < 40
    assert len(numbers(stream_server)) == len(set(numbers(stream_server))) == 80


def test_an_execution_that_was_replaced_adds_no_more_rows(stream_server: StreamServer) -> None:
    """Tasks of a driver that was killed run on for a while."""
    options = sink_options(stream_server.url, "s", {})
    old = RowSender(options, Marker("q", 0, 7, execution="first"))
    old.send(pa.RecordBatch.from_pydict({"n": list(range(20))}))
    task(stream_server, "second", 1, range(100, 110))
    written = numbers(stream_server)
    with pytest.raises(AttemptSuperseded, match="Another execution of batch 7 of the query 'q'"):
        send_and_flush(old, range(20, 60))
    old.close()
    with pytest.raises(AttemptSuperseded):
        task(stream_server, "first", 2, range(200, 210))
    assert numbers(stream_server) == written
    assert task(stream_server, "second", 0, range(60)).added > 0
    assert len(numbers(stream_server)) == 70


def test_a_new_checkpoint_with_the_same_query_id_fails(stream_server: StreamServer) -> None:
    options = sink_options(stream_server.url, "s", {})
    for batch in (0, 1):
        send_batches_of_task(
            batches(range(20)), options, Marker("q", 0, batch, execution=f"a{batch}", checkpoint="one")
        )
    for batch in (0, 1, 2, 9):
        with pytest.raises(UsageError, match="'q' was used by a query with another checkpoint"):
            send_batches_of_task(
                batches(range(5)), options, Marker("q", 0, batch, execution="new", checkpoint="two")
            )
    send_batches_of_task(batches(range(20)), options, Marker("q", 0, 2, execution="a2", checkpoint="one"))
    assert numbers(stream_server) == 3 * list(range(20))


def test_an_execution_begins_again_after_the_server_lost_all_its_keys(stream_server: StreamServer) -> None:
    options = sink_options(stream_server.url, "s", {})
    marker = Marker("q", 0, 7, execution="first")
    running = RowSender(options, marker)
    running.send(pa.RecordBatch.from_pydict({"n": [1, 2, 3]}))
    running.flush()
    stream_server.client.flushall()
    with pytest.raises(HeadraceError, match="The server confirmed 3 rows"):
        running.send(pa.RecordBatch.from_pydict({"n": list(range(4, 30))}))
    running.close()
    assert task(stream_server, "first", 0, range(30)).added == 30


def test_rejected_rows_do_not_block_a_repeated_batch(stream_server: StreamServer) -> None:
    """All rows of a transaction were rejected, so its partition has no marker."""
    task(stream_server, "first", 0, range(20))
    client = stream_server.client
    guard = attempts.AttemptGuard(Marker("q", 1, 7, execution="first"))
    client.append(guard.partitions_key(b"s"), "1=first 2=first ")
    assert [task(stream_server, "second", n, range(20 * n, 20 * n + 20)).added for n in (2, 1)] == [20, 20]
