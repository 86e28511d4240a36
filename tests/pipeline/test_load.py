"""Loading rows into streams of a real server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import redis

from headrace.client.servers import Servers
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.file_formats.file_readers import FileReader
from headrace.pipeline.loading import row_checks
from headrace.pipeline.loading.load_rows import load_rows, sorted_by_time
from headrace.pipeline.loading.loader import LoadReport
from headrace.pipeline.loading.time_columns import TimeColumn, choose_time_column
from headrace.pipeline.shared.pacing import RateLimiter


@pytest.fixture
def link(server_url: str, client: redis.Redis) -> Iterator[Servers]:
    with Servers(server_url, reconnect_timeout=0) as link:
        yield link


def rows(*times: int | None) -> pa.RecordBatch:
    """Return rows numbered from 0, with these times in milliseconds."""
    return pa.RecordBatch.from_pydict(
        {"at": pa.array(times, pa.timestamp("ms")), "n": [str(n) for n in range(len(times))]}
    )


TIMES = TimeColumn("at", is_field=False)


def ids_and_numbers(client: redis.Redis) -> list[tuple[str, str]]:
    return [(entry_id, fields["n"]) for entry_id, fields in client.xrange("s")]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_file_is_loaded_exactly(kind: str, tmp_path: Path, link: Servers, client: redis.Redis) -> None:
    table = pa.table(
        {
            "at": ["1970-01-01T00:00:01Z", "1970-01-01T00:00:01Z", "1970-01-01T00:00:02.5Z"],
            "city": ["Łódź", None, 'a "b", c'],
            "n": [1, -2, None],
        }
    )
    path = tmp_path / f"file.{kind}"
    if kind == "csv":
        path.write_text(
            "at,city,n\n1970-01-01T00:00:01Z,Łódź,1\n1970-01-01T00:00:01Z,,-2\n"
            '1970-01-01T00:00:02.5Z,"a ""b"", c",\n'
        )
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        pyarrow.parquet.write_table(table, path)
    with FileReader(path) as file:
        batches = list(file.batches())
        report = load_rows(batches, choose_time_column(batches[0]), link, "s")
    assert client.xrange("s") == [
        ("1000-0", {"at": "1970-01-01T00:00:01Z", "city": "Łódź", "n": "1"}),
        ("1000-1", {"at": "1970-01-01T00:00:01Z", "n": "-2"}),
        ("2500-0", {"at": "1970-01-01T00:00:02.5Z", "city": 'a "b", c'}),
    ]
    assert (report.added_rows, report.first_id, report.last_id) == (3, "1000-0", "2500-0")
    assert (report.out_of_order, report.without_time, report.skipped) == (0, 0, 0)


def test_rows_with_an_earlier_time_get_the_last_time_and_are_counted(
    link: Servers, client: redis.Redis
) -> None:
    report = load_rows([rows(5, 3, None, 5), rows(4, 6)], TIMES, link, "s")
    assert [entry_id for entry_id, _ in client.xrange("s")] == ["5-0", "5-1", "5-2", "5-3", "5-4", "6-0"]
    assert (report.out_of_order, report.without_time) == (2, 1)


def test_the_first_generated_id_is_not_zero(link: Servers, client: redis.Redis) -> None:
    load_rows([rows(0, None)], TIMES, link, "s")
    assert [entry_id for entry_id, _ in client.xrange("s")] == ["0-1", "0-2"]


def test_a_time_before_1970_is_rejected(link: Servers, client: redis.Redis) -> None:
    with pytest.raises(UsageError, match=r"row 1: .*not a time from 1970 to 9999"):
        load_rows([rows(-5)], TIMES, link, "s")
    assert not client.exists("s")


def test_sorting_is_by_time_and_stable(link: Servers, client: redis.Redis) -> None:
    report = load_rows(sorted_by_time([rows(5, 3), rows(5, 1)], TIMES), TIMES, link, "s")
    assert ids_and_numbers(client) == [("1-0", "1"), ("3-0", "1"), ("5-0", "0"), ("5-1", "0")]
    assert report.out_of_order == 0


def test_sorting_combines_batches_with_different_columns(link: Servers, client: redis.Redis) -> None:
    first = pa.RecordBatch.from_pydict({"at": ["1970-01-01T00:00:02Z"], "a": ["x"]})
    second = pa.RecordBatch.from_pydict({"b": ["y"], "at": ["1970-01-01T00:00:01Z"]})
    times = TimeColumn("at", is_field=False)
    load_rows(sorted_by_time([first, second], times), times, link, "s")
    assert client.xrange("s") == [("1000-0", {"b": "y"}), ("2000-0", {"a": "x"})]


def test_a_stream_with_later_ids_is_not_changed(link: Servers, client: redis.Redis) -> None:
    client.xadd("s", {"n": "old"}, id="7-0")
    with pytest.raises(
        UsageError, match=r"already has entries up to 7-0.*first row would be 7-0.*--append.*--new-ids"
    ):
        load_rows([rows(7, 8)], TIMES, link, "s")
    assert client.xlen("s") == 1


def test_rows_after_the_last_entry_need_no_option(link: Servers, client: redis.Redis) -> None:
    client.xadd("s", {"n": "old"}, id="6-0")
    load_rows([rows(7)], TIMES, link, "s")
    assert ids_and_numbers(client) == [("6-0", "old"), ("7-0", "0")]


def test_append_puts_rows_after_the_last_entry(link: Servers, client: redis.Redis) -> None:
    client.xadd("s", {"n": "old"}, id="7-3")
    report = load_rows([rows(5, 7, 8)], TIMES, link, "s", append=True)
    assert ids_and_numbers(client) == [("7-3", "old"), ("7-4", "0"), ("7-5", "1"), ("8-0", "2")]
    assert report.out_of_order == 1


def test_maxlen_trims_while_loading(link: Servers, client: redis.Redis) -> None:
    report = load_rows([rows(*range(1, 2001))], TIMES, link, "s", maxlen=500, rows_per_batch=100)
    assert report.added_rows == 2000
    assert 500 <= client.xlen("s") < 700


def test_progress_counts_up_batch_by_batch(link: Servers) -> None:
    seen: list[int] = []

    def watch(report: LoadReport) -> None:
        seen.append(report.added_rows)

    load_rows([rows(1, 2, 3), rows(4, 5)], TIMES, link, "s", rows_per_batch=2, on_progress=watch)
    assert seen == [2, 3, 5, 5]  # once more when all rows are in


def test_large_rows_are_sent_in_smaller_batches(
    link: Servers, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_checks, "BATCH_BYTES", 10_000)
    seen: list[int] = []
    large = pa.RecordBatch.from_pydict(
        {"at": pa.array(range(1, 21), pa.timestamp("ms")), "v": ["x" * 4000] * 20}
    )
    load_rows([large], TIMES, link, "s", on_progress=lambda report: seen.append(report.added_rows))
    assert client.xlen("s") == 20
    assert len(seen) >= 8


def test_another_type_of_key_is_rejected(link: Servers, client: redis.Redis) -> None:
    client.set("s", "text")
    with pytest.raises(HeadraceError, match="WRONGTYPE"):
        load_rows([rows(1)], TIMES, link, "s")


def test_an_error_of_the_server_is_reported_and_its_batch_is_not_added(
    link: Servers, client: redis.Redis
) -> None:
    load_rows([rows(1, 2)], TIMES, link, "s")
    client.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(HeadraceError, match="OOM"):
            load_rows([rows(3, 4, 5)], TIMES, link, "s")
    finally:
        client.config_set("maxmemory", "0")
    assert client.xlen("s") == 2


def test_an_unreachable_server_is_reported_with_its_address() -> None:
    with (
        Servers("redis://127.0.0.1:1", reconnect_timeout=0) as link,
        pytest.raises(HeadraceError, match=r"127\.0\.0\.1:1.*headrace serve"),
    ):
        load_rows([rows(1)], TIMES, link, "s")


def test_an_invalid_address_is_rejected() -> None:
    with pytest.raises(UsageError, match="not a server's address"):
        Servers("localhost:6379")


def test_a_load_with_a_rate_adds_all_rows(link: Servers, client: redis.Redis) -> None:
    now = [0.0]
    seen: list[tuple[float, int]] = []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    load_rows(
        [rows(*range(1, 3001))],
        TIMES,
        link,
        "s",
        rate=RateLimiter(1000, clock=lambda: now[0], sleep=sleep),
        on_progress=lambda report: seen.append((now[0], report.added_rows)),
    )
    assert [int(number) for _, number in ids_and_numbers(client)] == list(range(3000))
    assert seen.pop()[1] == 3000  # all rows are in
    assert len(seen) == 30
    assert [count for _, count in seen] == pytest.approx([1000 * at + 100 for at, _ in seen])


def test_values_without_text_are_bad_rows_and_the_others_are_loaded(
    link: Servers, client: redis.Redis
) -> None:
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3], "list": [[b"ok"], [b"\xff"], [b"ok"]]})
    bad: list[str] = []
    report = load_rows([rows], None, link, "lists", on_bad_row=lambda row, _: bad.append(str(row)))
    assert [fields["n"] for _, fields in client.xrange("lists")] == ["1", "3"]
    assert (report.added_rows, report.rejected) == (2, 1)
    assert bad[0].startswith("row 2: column 'list' holds the bytes b'\\xff' in an array, map or struct")
    with pytest.raises(UsageError, match="row 2: column 'list' holds"):
        load_rows([rows], None, link, "others")
    assert [fields["n"] for _, fields in client.xrange("others")] == ["1"]
