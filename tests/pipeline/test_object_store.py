"""Archives in an object store: a real server of its protocol, which is slow, failing or refusing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars
import pytest
import redis
from deltalake import DeltaTable
from pyarrow.fs import FileSelector
from pyspark.sql import SparkSession

from headrace.archive.creation import EXCLUSIVE_COMMITS_PROPERTY, create_or_open
from headrace.archive.files import archived_through, read_archive
from headrace.archive.location import ArchiveLocation, archive_location
from headrace.archive.merging import merge_small_files
from headrace.archive.watermark import lowest_published_id
from headrace.archive.writer import write_days
from headrace.cli.main import main
from headrace.columns.declarations import parse_schema
from headrace.errors import HeadraceError
from headrace.pipeline.archiving.archive_streams import archive_streams
from headrace.pipeline.querying.duckdb_query import run_sql
from headrace.pipeline.spark_session.local_spark import local_spark
from headrace.pipeline.trimming.horizon import RetentionPolicy
from headrace.pipeline.trimming.trim_streams import trim_streams
from headrace.positions.position import parse_positions
from support.archives import ArchiveMaker, counted_entries, files_in
from support.faulty_proxy import Fault
from support.object_store import (
    BUCKET,
    IMPATIENT,
    FaultyProxy,
    environment_of,
    make_bucket,
    options_of,
    proxy_of,
    s3_server,
)
from support.waiting import wait_until

pytestmark = [pytest.mark.whole, pytest.mark.slow]

DAY_MS = 86_400_000
COUNT = 60


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark("test", tmp_path_factory.mktemp("spark") / "log") as spark:
        yield spark


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server(tmp_path_factory.mktemp("store") / "log") as port:
        yield port


@pytest.fixture
def proxy(store: int) -> Iterator[FaultyProxy]:
    with proxy_of(store) as proxy:
        yield proxy


def place(request: pytest.FixtureRequest, port: int, **more: str) -> ArchiveLocation:
    """Return an archive of the test's own, in the store behind a port."""
    name = re.sub(r"\W+", "-", request.node.name)
    return archive_location(f"s3://{BUCKET}/{name}/orders", options_of(port, **more))


def fill(client: redis.Redis, first: int, count: int) -> None:
    with client.pipeline(transaction=False) as pipe:
        for n in range(first, first + count):
            pipe.xadd("orders", {"n": n, "name": f"name {n}"}, f"{n * DAY_MS // 20}-1")
        pipe.execute()


def expected(count: int) -> dict[tuple[str, str], int]:
    return {("orders", f"{n * DAY_MS // 20}-1"): 1 for n in range(1, count + 1)}


# What has a fault: commits, but not the creation of the table; files; all requests.
BROKEN = {
    "commits": r"^PUT .*/orders/_delta_log/(?!0{20})",
    "files": r"^P(UT|OST) .*\.parquet",
    "all": "",
}


def test_an_archive_in_an_object_store_is_written_read_trimmed_and_replayed(
    request: pytest.FixtureRequest, spark: SparkSession, store: int, server_url: str, client: redis.Redis
) -> None:
    location = place(request, store)
    fill(client, 1, COUNT)
    assert archive_streams(spark, server_url, "orders", location, entries_per_batch=25) == COUNT
    assert archive_streams(spark, server_url, "orders", location) == 0
    fill(client, COUNT + 1, 5)
    assert archive_streams(spark, server_url, "orders", location) == 5
    assert counted_entries(location) == expected(COUNT + 5)

    before = len(files_in(location))
    done = merge_small_files(create_or_open(location, None, "UTC"))
    assert (
        done.merged_files > done.replacement_files > 0
        and len(files_in(location)) == before - done.merged_files + done.replacement_files
    )
    assert counted_entries(location) == expected(COUNT + 5)

    retention = RetentionPolicy(allow_no_groups=True)
    assert [
        each.removed for each in trim_streams(server_url, ["orders"], archive=location, retention=retention)
    ] == [COUNT + 4]
    fill(client, COUNT + 6, 3)
    with run_sql("SELECT count(*), sum(n) FROM orders", server_url, archive=location) as result:
        rows = [tuple(row.values()) for row in result.rows.read_all().to_pylist()]
    total = COUNT + 8
    assert rows == [(total, total * (total + 1) // 2)]
    frame = (
        spark.read.format("headrace")
        .options(url=server_url, subscribe="orders", archive=location.uri)
        .option("archiveOptions", json.dumps(dict(location.options)))
        .option("startingOffsets", "earliest")
        .load()
    )
    assert frame.count() == total


def test_streams_of_any_name_are_read_by_other_programs(request: pytest.FixtureRequest, store: int) -> None:
    location = place(request, store)
    maker = ArchiveMaker(location)
    names = ["plain", "orders:eu", "a/b c", "100%25", "\u00e9", "", "z" * 3000]
    for number, stream in enumerate(names):
        maker.add_written(stream, [(f"5-{number}", {"n": number})])
    assert counted_entries(location) == {(stream, f"5-{n}"): 1 for n, stream in enumerate(names)}
    options = dict(location.options) | {"AWS_ALLOW_HTTP": "true"}
    table = DeltaTable(location.uri, storage_options=options).to_pyarrow_table(columns=["stream"])
    assert {stream or "" for stream in table.column("stream").to_pylist()} == set(names)
    found = polars.scan_delta(location.uri, storage_options=options).select("stream", "sequence").collect()
    rows = {number: stream for stream, number in found.rows()}
    assert [rows[number] for number in range(6)] == [*names[:5], None] and found.height == len(names)


def test_files_that_a_vacuum_deletes_before_their_commit_are_not_committed(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    proxy: FaultyProxy,
    server_url: str,
    client: redis.Redis,
) -> None:
    location = place(request, proxy.port)
    fill(client, 1, 20)
    assert archive_streams(spark, server_url, "orders", location) == 20
    watermark = lowest_published_id(client, "orders")
    maker = ArchiveMaker(location)
    files = write_days(maker.batches([("99999999-1", {}), ("999999999-1", {})]), "orders", location, "UTC")
    DeltaTable(location.uri, storage_options=location.storage_options()).vacuum(
        retention_hours=0, enforce_retention_duration=False, full=True, dry_run=False
    )
    with pytest.raises(HeadraceError, match="2 files of this job, such as stream=orders/date=1970-01-02"):
        maker.table.commit(files, parse_positions({"orders": "999999999-1"}))
    assert archived_through(location) == {"orders": watermark}
    assert counted_entries(location) == expected(20)


def test_a_trim_by_an_archive_that_lacks_a_file_removes_nothing(
    request: pytest.FixtureRequest, store: int, server_url: str, client: redis.Redis
) -> None:
    fill(client, 1, 20)
    maker = ArchiveMaker(place(request, store))
    maker.add_written("orders", [(f"{n * DAY_MS // 20}-1", {"n": n}) for n in range(1, 21)])
    maker.remember({"orders": f"{DAY_MS}-1"})
    file = files_in(maker.location)[0]
    folder, _, name = file.path.rpartition("/")
    maker.location.filesystem(folder).delete_file(name)
    with pytest.raises(HeadraceError, match=f"lacks 1 file, such as {file.path}"):
        trim_streams(
            server_url, ["orders"], archive=maker.location, retention=RetentionPolicy(allow_no_groups=True)
        )
    assert client.xlen("orders") == 20


def test_a_store_that_ignores_conditions_is_refused_when_a_table_is_created_or_first_opened(
    request: pytest.FixtureRequest, store: int, proxy: FaultyProxy
) -> None:
    location = place(request, proxy.port)
    proxy.set_fault(Fault("^PUT", without="if-none-match"))
    with pytest.raises(HeadraceError, match="the object store ignores the condition If-None-Match") as error:
        create_or_open(location, None, "UTC")
    assert "\n" not in str(error.value)
    assert not location.filesystem().get_file_info(FileSelector("", recursive=True, allow_not_found=True))

    create_or_open(place(request, store), None, "UTC")
    create_or_open(location, None, "UTC")  # the table says that its store was probed
    table = DeltaTable(location.uri, storage_options=location.storage_options())
    table.alter.set_table_properties({EXCLUSIVE_COMMITS_PROPERTY: "no"}, raise_if_not_exists=False)
    with pytest.raises(HeadraceError, match="the object store ignores the condition If-None-Match"):
        create_or_open(location, None, "UTC")
    create_or_open(place(request, store), None, "UTC")
    create_or_open(location, None, "UTC")


def test_a_store_that_rejects_conditions_is_refused(
    request: pytest.FixtureRequest, proxy: FaultyProxy
) -> None:
    proxy.set_fault(Fault(r"^PUT .*_delta_log/0+1\.json", 501, "NotImplemented"))
    with pytest.raises(HeadraceError, match=r"the object store rejects conditional writes.*NotImplemented"):
        create_or_open(place(request, proxy.port, **IMPATIENT), None, "UTC")


def test_the_command_finds_credentials_in_the_environment_or_in_its_options(
    tmp_path: Path, request: pytest.FixtureRequest, store: int, server_url: str, client: redis.Redis
) -> None:
    location = place(request, store)
    fill(client, 1, COUNT)
    command = [sys.executable, "-m", "headrace"]
    to = ["--to", location.uri, "--url", server_url]
    environment = environment_of(store)
    done = subprocess.run(
        [*command, "archive", "--stream", "orders", *to], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"{COUNT} entries written" in done.stdout
    without = {name: value for name, value in environment.items() if not name.startswith("AWS_")}
    given = [each for pair in location.options for each in ("--storage-option", "=".join(pair))]
    query = ["query", "--json", "--url", server_url, "--archive", location.uri]
    sql = "SELECT count(*) AS n FROM orders"
    for more, env in ((given, without), ([], environment)):
        done = subprocess.run([*command, *query, *more, sql], env=env, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, f'{{"n": {COUNT}}}\n'), done.stderr


def test_of_two_jobs_on_one_archive_one_continues(
    request: pytest.FixtureRequest, spark: SparkSession, store: int, server_url: str, client: redis.Redis
) -> None:
    location = place(request, store)
    fill(client, 1, COUNT)
    ended: list[HeadraceError] = []

    def other_job(done: object) -> None:
        if not ended:
            ended.append(HeadraceError("the other one has run"))
            assert archive_streams(spark, server_url, "orders", location) == COUNT - 20

    with pytest.raises(HeadraceError, match="another job archives to s3://") as error:
        archive_streams(spark, server_url, "orders", location, entries_per_batch=20, on_batch=other_job)
    assert "\n" not in str(error.value)
    assert counted_entries(location) == expected(COUNT)
    assert lowest_published_id(client, "orders") == f"{COUNT * DAY_MS // 20}-1"


FAULTS = {
    "503": (Fault("", 503, "SlowDown"), "503"),
    "500": (Fault("", 500, "InternalError"), "500"),
    "403": (Fault("", 403, "AccessDenied"), "AccessDenied by the test"),
    "closed": (Fault(""), "error sending request|connection closed|connection error"),
    "slow": (Fault("", seconds=60), "timed out"),
}


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        *(("commits", kind) for kind in FAULTS),
        *(("files", kind) for kind in ("503", "403", "slow")),
        *(("all", kind) for kind in ("403", "slow")),
    ],
)
def test_a_broken_store_is_reported_in_one_line_and_the_next_run_continues(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    proxy: FaultyProxy,
    store: int,
    server_url: str,
    client: redis.Redis,
    broken: str,
    kind: str,
) -> None:
    fault, text = FAULTS[kind]
    fill(client, 1, 20)
    assert archive_streams(spark, server_url, "orders", place(request, store)) == 20
    watermark = lowest_published_id(client, "orders")
    fill(client, 21, COUNT - 20)

    location = place(request, proxy.port, **IMPATIENT)
    proxy.set_fault(replace(fault, pattern=BROKEN[broken]))
    with pytest.raises(HeadraceError, match=f"(?i){text}") as error:
        archive_streams(spark, server_url, "orders", location)
    assert "\n" not in str(error.value) and location.uri in str(error.value)
    assert len(str(error.value)) < 500
    assert lowest_published_id(client, "orders") == watermark

    repaired = place(request, store)
    assert archived_through(repaired) == {"orders": watermark}
    assert archive_streams(spark, server_url, "orders", repaired) == COUNT - 20
    assert counted_entries(repaired) == expected(COUNT)


def test_a_store_that_recovers_is_not_noticed(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    proxy: FaultyProxy,
    server_url: str,
    client: redis.Redis,
) -> None:
    location = place(request, proxy.port)
    fill(client, 1, COUNT)
    proxy.set_fault(Fault("", 503, "SlowDown", after=3, times=3))
    assert archive_streams(spark, server_url, "orders", location, entries_per_batch=20) == COUNT
    assert len(proxy.requests()) > 12
    assert counted_entries(location) == expected(COUNT)


def test_a_commit_whose_answer_is_lost_counts_once(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    proxy: FaultyProxy,
    server_url: str,
    client: redis.Redis,
) -> None:
    location = place(request, proxy.port, **IMPATIENT)
    fill(client, 1, COUNT)
    proxy.set_fault(Fault(BROKEN["commits"], performed=True, times=1, after=1))
    assert archive_streams(spark, server_url, "orders", location, entries_per_batch=20) == COUNT
    assert counted_entries(location) == expected(COUNT)
    assert lowest_published_id(client, "orders") == f"{COUNT * DAY_MS // 20}-1"


def test_a_missing_bucket_wrong_address_and_foreign_table_are_named(
    request: pytest.FixtureRequest, spark: SparkSession, store: int, server_url: str, client: redis.Redis
) -> None:
    fill(client, 1, 3)
    missing = archive_location("s3://no-such-bucket/orders", options_of(store, **IMPATIENT))
    with pytest.raises(HeadraceError, match=r"no-such-bucket.*bucket") as error:
        archive_streams(spark, server_url, "orders", missing)
    assert "\n" not in str(error.value)
    with pytest.raises(HeadraceError, match="there is no archive"):
        read_archive(place(request, store))
    nowhere = archive_location(f"s3://{BUCKET}/x", options_of(1, **IMPATIENT))
    with pytest.raises(HeadraceError, match=r"error sending request|[Cc]onnect") as error:
        archive_streams(spark, server_url, "orders", nowhere)
    assert "\n" not in str(error.value)
    make_bucket(store, "another")
    other = archive_location("s3://another/orders", options_of(store))
    assert archive_streams(spark, server_url, "orders", other, fields=parse_schema("n INT, name STRING")) == 3


def test_a_killed_job_leaves_whole_batches_and_the_next_one_continues(
    tmp_path: Path, request: pytest.FixtureRequest, store: int, server_url: str, client: redis.Redis
) -> None:
    location = place(request, store)
    fill(client, 1, COUNT)
    words = ["archive", "--stream", "orders", "--to", location.uri, "--url", server_url, "--batch", "10"]
    with proxy_of(store) as slow:
        slow.set_fault(Fault(BROKEN["commits"], seconds=600, after=2))
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *words],
            env=environment_of(slow.port) | {"TMPDIR": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(
            lambda: sum(bool(re.search(BROKEN["commits"], each)) for each in slow.requests()) > 2,
            "the third batch",
        )
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    known = archived_through(location)["orders"]
    assert lowest_published_id(client, "orders") == known
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words], env=environment_of(store), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert counted_entries(location) == expected(COUNT)


def test_check_lists_files_that_do_not_count_of_all_archives_below_a_url(
    store: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in options_of(store).items():
        monkeypatch.setenv(name, value)
    for name in ("orders", "other"):
        maker = ArchiveMaker(archive_location(f"s3://{BUCKET}/checked/{name}", options_of(store)))
        maker.add_written("orders:eu", [("1-0", {"n": 1})])
        [killed] = maker.write_files("orders:eu", [("7-0", {"n": 1})])
    assert main(["check", f"s3://{BUCKET}/checked"]) == 0
    out = capsys.readouterr().out
    assert out.count(f"Not referenced: 1 file of {killed.size:,} bytes") == 2
    assert "(entries of 'orders:eu' up to 7-0)" in out
    maker.location.filesystem("_delta_log").delete_file(f"{1:020}.json")
    assert main(["check", f"s3://{BUCKET}/checked"]) == 1
    assert f"{1:020}.json is missing: the newest version was deleted" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["a b", "100%", "\u00fc=1", "a+b#c?d"])
@pytest.mark.parametrize("stream", ["a b", "k=v%41", "\u65e5\u672c/x"])
def test_folders_and_streams_of_any_name_are_found_by_every_command(
    store: int,
    server_url: str,
    client: redis.Redis,
    capsys: pytest.CaptureFixture[str],
    folder: str,
    stream: str,
) -> None:
    above = f"s3://{BUCKET}/any {len(stream)}/{folder}"
    place = f"{above}/orders"
    maker = ArchiveMaker(archive_location(place, options_of(store)))
    rows = [(f"{n}-0", {"n": n}) for n in range(1, 7)]
    client.delete(stream, "copy")
    for id_, fields in rows:
        client.xadd(stream, dict(fields), id_)  # type: ignore[arg-type]
    for part in (rows[:3], rows[3:]):
        maker.commit(maker.write_files(stream, part), {stream: part[-1][0]})
    options = [f"--storage-option={name}={value}" for name, value in options_of(store).items()]
    archive, url = ["--archive", place, *options], ["--url", server_url]
    for words, text in (
        (["check", above, *options], "6 entries in 2 files of"),
        (["query", f'SELECT sum(n) FROM "{stream}"', *archive, "--archive-only", "--csv"], "\n21\n"),
        (["trim", "--stream", stream, *archive, *url, "--no-groups-ok"], "5 entries removed"),
        (["query", f'SELECT sum(n) FROM "{stream}"', *archive, *url, "--csv"], "\n21\n"),
        (["replay", "--stream", stream, *archive, *url, "--into", "copy"], "6 entries"),
    ):
        assert main(words) == 0
        assert text in capsys.readouterr().out.replace("\r", "")
    assert client.xlen("copy") == 6
