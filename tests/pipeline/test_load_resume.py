"""Interrupted loads: exactly the earlier rows are in the stream, and a resumed load adds the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import redis

from headrace.client.servers import Servers
from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.pipeline.file_formats.csv_records import BadRow
from headrace.pipeline.file_formats.file_readers import FileReader
from headrace.pipeline.loading.load_rows import load_rows
from headrace.pipeline.loading.loader import LoadIdentity, LoadReport
from headrace.pipeline.loading.marker import RowDigest
from headrace.pipeline.loading.row_checks import ValidRows
from headrace.pipeline.loading.time_columns import TimeColumn
from support.stream_server import StreamServer

TIMES = TimeColumn("at", is_field=False)
JOB = LoadIdentity("x", "rows.csv", 100)


@pytest.fixture
def link(stream_server: StreamServer) -> Iterator[Servers]:
    with Servers(stream_server.url, reconnect_timeout=0) as link:
        yield link


def rows(*numbers: int) -> pa.RecordBatch:
    """Return rows of these numbers; the number is also the time in milliseconds."""
    return pa.RecordBatch.from_pydict(
        {"at": pa.array(numbers, pa.timestamp("ms")), "n": [str(n) for n in numbers]}
    )


def numbers(server: StreamServer, stream: str = "s") -> list[int]:
    """Return the numbers of the loaded entries in the stream's order; entries of others have none."""
    return [int(fields[b"n"]) for _, fields in server.client.xrange(stream) if b"n" in fields]


def stop_after(count: int) -> Callable[[LoadReport], None]:
    def stop(report: LoadReport) -> None:
        if report.loaded >= count:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("times", [None, TIMES])
def test_a_load_that_is_interrupted_repeatedly_is_exact(
    stream_server: StreamServer, link: Servers, times: TimeColumn | None
) -> None:
    every = [rows(*range(1, 400)), rows(*range(400, 1001))]
    for stop in (1, 250, 399, 700):
        seen: list[LoadReport] = []
        broken: list[bool] = []

        def break_off(
            report: LoadReport, stop: int = stop, seen: list[LoadReport] = seen, broken: list[bool] = broken
        ) -> None:
            seen.append(report)
            if report.loaded >= stop and not broken:
                broken.append(True)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            load_rows(every, times, link, "s", job=JOB, resume=True, rows_per_batch=7, on_progress=break_off)
        assert seen[-1].loaded == len(numbers(stream_server))
        assert not seen[-1].uncertain
    report = load_rows(every, times, link, "s", job=JOB, resume=True, rows_per_batch=13)
    assert numbers(stream_server) == list(range(1, 1001))
    assert report.loaded == 1000 and report.skipped >= 700
    assert stream_server.client.xinfo_stream("s")["length"] == 1000


def test_a_complete_load_that_is_resumed_adds_nothing(stream_server: StreamServer, link: Servers) -> None:
    load_rows([rows(1, 2, 3)], None, link, "s", job=JOB)
    report = load_rows([rows(1, 2, 3)], None, link, "s", job=JOB, resume=True)
    assert (report.added_rows, report.skipped) == (0, 3)
    assert numbers(stream_server) == [1, 2, 3]
    report = load_rows([rows(1, 2, 3), rows(4)], None, link, "s", job=JOB, resume=True)
    assert (report.added_rows, report.skipped) == (1, 3)
    assert numbers(stream_server) == [1, 2, 3, 4]


def test_a_complete_load_that_is_run_again_adds_all_rows_again(
    stream_server: StreamServer, link: Servers
) -> None:
    for _ in range(2):
        assert load_rows([rows(1, 2)], None, link, "s", job=JOB).added_rows == 2
    assert numbers(stream_server) == [1, 2, 1, 2]


def test_entries_of_other_clients_are_not_counted_as_rows_of_the_file(
    stream_server: StreamServer, link: Servers
) -> None:
    stream_server.client.xadd("s", {"other": "1"}, id="9999-0")
    report = load_rows([rows(1, 2, 3)], None, link, "s", job=JOB, resume=True)
    assert (report.added_rows, report.skipped) == (3, 0)
    assert numbers(stream_server) == [1, 2, 3]


def test_other_producers_do_not_disturb_a_load(stream_server: StreamServer, link: Servers) -> None:
    done = threading.Event()

    def produce() -> None:
        with redis.Redis(port=stream_server.port) as client:
            while not done.is_set():
                client.xadd("s", {"other": "1"})

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        every = [rows(*range(1, 1001))]
        with pytest.raises(KeyboardInterrupt):
            load_rows(every, None, link, "s", job=JOB, rows_per_batch=10, on_progress=stop_after(200))
        there = len(numbers(stream_server))
        report = load_rows(every, None, link, "s", job=JOB, resume=True, rows_per_batch=10)
    finally:
        done.set()
        producer.join()
    assert report.skipped == there and report.added_rows == 1000 - there
    assert numbers(stream_server) == list(range(1, 1001))


@pytest.mark.parametrize(("ahead", "intruded"), [(False, 4), (False, 8), (True, 4)])
def test_an_append_that_conflicts_with_other_clients_continues_after_their_entries(
    stream_server: StreamServer, link: Servers, ahead: bool, intruded: int
) -> None:
    def intrude(report: LoadReport) -> None:
        if report.added_rows == intruded and not stream_server.client.exists("intruded"):
            stream_server.client.set("intruded", "1")
            stream_server.client.xadd("s", {"other": "1"}, id="500-7")

    report = load_rows(
        [rows(*range(1, 11))],
        TIMES,
        link,
        "s",
        append=True,
        rows_per_batch=4,
        on_progress=intrude,
        ahead=ahead,
    )
    assert report.added_rows == 10
    assert numbers(stream_server) == list(range(1, 11))
    ids = [i.decode() for i, _ in stream_server.client.xrange("s")]
    first = ids.index("500-7")
    assert first >= intruded and ids[first + 1 :] == [f"500-{n}" for n in range(8, 18 - first)]


def test_a_load_that_conflicts_with_other_clients_reports_how_to_continue(
    stream_server: StreamServer, link: Servers
) -> None:
    seen: list[int] = []

    def intrude(report: LoadReport) -> None:
        seen.append(report.loaded)
        if len(seen) == 1:
            stream_server.client.xadd("s", {"other": "1"}, id="7-0")

    every = [rows(*range(1, 11))]
    with pytest.raises(UsageError, match=r"not above 7-0.*--append --resume"):
        load_rows(every, TIMES, link, "s", job=JOB, rows_per_batch=4, on_progress=intrude)
    assert seen[-1] == 4 and numbers(stream_server) == [1, 2, 3, 4]
    with pytest.raises(UsageError, match=r"not above 7-0.*--append --resume"):
        load_rows(every, TIMES, link, "s", job=JOB, resume=True)
    report = load_rows(every, TIMES, link, "s", job=JOB, resume=True, append=True)
    assert (report.added_rows, report.skipped) == (6, 4)
    assert numbers(stream_server) == list(range(1, 11))


@pytest.mark.parametrize("times", [None, TIMES])
def test_good_rows_before_a_bad_one_are_loaded_and_the_load_is_resumed_after_them(
    stream_server: StreamServer, link: Servers, times: TimeColumn | None
) -> None:
    seen: list[LoadReport] = []
    bad = BadRow(4, "expected 2 columns, found 1", b"oops\n")
    with pytest.raises(UsageError, match=r"rows.csv: line 4: expected 2 columns"):
        load_rows([rows(1, 2, 3), bad, rows(5)], times, link, "s", job=JOB, on_progress=seen.append)
    assert numbers(stream_server) == [1, 2, 3] and seen[-1].loaded == 3
    report = load_rows([rows(1, 2, 3, 4, 5)], times, link, "s", job=JOB, resume=True)
    assert (report.added_rows, report.skipped) == (2, 3)
    assert numbers(stream_server) == [1, 2, 3, 4, 5]


def test_rows_with_an_invalid_time_or_without_any_value_are_bad_rows(
    stream_server: StreamServer, link: Servers
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"at": ["2020-01-01", "soon", "2020-01-02", None], "n": ["1", "2", "3", None]}
    )
    times = TimeColumn("at")
    with pytest.raises(UsageError, match="row 2: column 'at' holds 'soon', which is not a time"):
        load_rows([batch], times, link, "s", job=JOB)
    assert numbers(stream_server) == [1]
    bad: list[tuple[str, int]] = []
    report = load_rows(
        [batch], times, link, "s", job=JOB, resume=True, on_bad_row=lambda row, n: bad.append((str(row), n))
    )
    assert numbers(stream_server) == [1, 3] and report.rejected == 2
    assert bad == [
        ("row 2: column 'at' holds 'soon', which is not a time", 1),
        ("row 4: no column has a value", 2),
    ]
    assert load_rows([batch], times, link, "s", job=JOB, resume=True).rejected == 0, (
        "they were left out before"
    )


def test_a_bad_row_that_was_added_to_a_loaded_file_is_reported(
    stream_server: StreamServer, link: Servers
) -> None:
    bad = BadRow(4, "expected 2 columns, found 1", b"oops\n")
    load_rows([rows(1, 2, 3)], None, link, "s", job=JOB)
    longer = replace(JOB, size=JOB.size + 5)
    with pytest.raises(UsageError, match=r"rows.csv: line 4: expected 2 columns"):
        load_rows([rows(1, 2, 3), bad], None, link, "s", job=longer, resume=True)
    found: list[BadRow] = []
    report = load_rows(
        [rows(1, 2, 3), bad], None, link, "s", job=longer, resume=True,
        on_bad_row=lambda row, n: found.append(row),
    )  # fmt: skip
    assert (report.rejected, found) == (1, [bad])
    load_rows([rows(1, 2, 3), bad], None, link, "s", job=longer, resume=True)
    assert numbers(stream_server) == [1, 2, 3]


def test_a_file_whose_loaded_rows_have_changed_is_not_resumed(
    stream_server: StreamServer, link: Servers
) -> None:
    load_rows([rows(1, 2, 3)], None, link, "s", job=JOB)
    for other in ([rows(1, 2)], [rows(1, 9, 3, 4)], [rows(2, 1, 3)]):
        with pytest.raises(UsageError, match=r"first 3 rows of rows.csv are not those that were loaded"):
            load_rows(other, None, link, "s", job=JOB, resume=True)
    assert numbers(stream_server) == [1, 2, 3]


def test_an_incomplete_load_is_not_started_again_by_mistake(
    stream_server: StreamServer, link: Servers
) -> None:
    with pytest.raises(UsageError):
        load_rows([rows(1, 2), BadRow(4, "bad")], None, link, "s", job=JOB)
    with pytest.raises(UsageError, match=r"stopped after 2 rows; use --resume .* or --append"):
        load_rows([rows(1, 2, 3)], None, link, "s", job=JOB)
    assert numbers(stream_server) == [1, 2]
    load_rows([rows(1, 2, 3)], None, link, "s", job=LoadIdentity("y"))
    load_rows([rows(1, 2, 3)], None, link, "s", job=JOB, append=True)
    assert numbers(stream_server) == [1, 2, 1, 2, 3, 1, 2, 3]


def test_a_stream_that_was_deleted_is_loaded_from_the_beginning(
    stream_server: StreamServer, link: Servers
) -> None:
    load_rows([rows(1, 2)], None, link, "s", job=JOB)
    stream_server.client.delete("s")
    assert load_rows([rows(1, 2)], None, link, "s", job=JOB, resume=True).added_rows == 2
    assert numbers(stream_server) == [1, 2]


def test_a_load_without_a_name_leaves_no_key(stream_server: StreamServer, link: Servers) -> None:
    load_rows([rows(1, 2)], None, link, "s")
    assert stream_server.client.keys() == [b"s"]
    load_rows([rows(1, 2)], None, link, "s", job=JOB)
    [key] = stream_server.client.keys("*headrace*")
    assert key == b"{s}:headrace:load:x" and stream_server.client.pttl(key) > 0


def test_rows_that_the_server_rejects_are_counted_exactly(stream_server: StreamServer, link: Servers) -> None:
    seen: list[LoadReport] = []

    def fill(report: LoadReport) -> None:
        seen.append(report)
        if report.added_rows == 20:
            stream_server.client.config_set("maxmemory", "1")

    try:
        with pytest.raises(HeadraceError, match="OOM"):
            load_rows([rows(*range(1, 101))], None, link, "s", job=JOB, rows_per_batch=10, on_progress=fill)
    finally:
        stream_server.client.config_set("maxmemory", "0")
    assert seen[-1].loaded == len(numbers(stream_server)) < 100 and not seen[-1].uncertain
    load_rows([rows(*range(1, 101))], None, link, "s", job=JOB, resume=True)
    assert numbers(stream_server) == list(range(1, 101))


def test_an_invalid_marker_is_reported(stream_server: StreamServer, link: Servers) -> None:
    stream_server.client.xadd("s", {"a": "1"})
    stream_server.client.set("{s}:headrace:load:x", "nonsense")
    with pytest.raises(CommandError, match="'nonsense', which is not the marker of a load"):
        load_rows([rows(1)], None, link, "s", job=JOB, resume=True)


def test_columns_with_names_that_the_spark_sink_reserves_are_fields(
    stream_server: StreamServer, link: Servers
) -> None:
    batch = pa.RecordBatch.from_pydict({"_id": ["a"], "_stream": ["b"], "id": ["c"], "_fields": ["d"]})
    load_rows([batch], None, link, "s")
    [(_, fields)] = stream_server.client.xrange("s")
    assert fields == {b"_id": b"a", b"_stream": b"b", b"id": b"c", b"_fields": b"d"}


def test_a_digest_does_not_depend_on_how_rows_are_split_into_batches() -> None:
    whole, pieces = RowDigest(has_times=True), RowDigest(has_times=True)
    batch = pa.RecordBatch.from_pydict({"a": ["x", None, "z"], "b": [1.0, 2.5, None], "c": [[1], [], None]})
    part = ValidRows(batch, [1, None, 2])
    whole.update(part)
    for at in range(3):
        pieces.update(part.slice(at, at + 1))
    assert whole.fields_hex() == pieces.fields_hex() != RowDigest().fields_hex()
    assert whole.times_hex() == pieces.times_hex() != RowDigest(has_times=True).times_hex()


def test_a_file_that_grew_is_resumed_after_its_first_rows(
    stream_server: StreamServer, link: Servers, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(500)))
    for grown in (500, 700):
        with path.open("a") as file:
            file.writelines(f'{{"m": 1, "n": {n}}}\n' for n in range(500, grown))
        with FileReader(path) as table:
            load_rows(table.batches_and_bad_rows(), None, link, "s", job=JOB, resume=True)
    assert numbers(stream_server) == list(range(700))
