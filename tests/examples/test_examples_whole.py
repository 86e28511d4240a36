"""The examples, each on a small stream in one Spark session, against what plain Python makes of the same."""

from __future__ import annotations

import importlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.stream_server import StreamServer

pytestmark = pytest.mark.whole
MINUTE = 60_000
BEGIN = 1_700_000_000_000


@pytest.fixture
def server(headrace_server: StreamServer) -> StreamServer:
    return headrace_server


def example(name: str) -> Any:
    return importlib.import_module(name)


def texts(server: StreamServer, stream: str) -> list[dict[str, str]]:
    return [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in server.client.xrange(stream)]


def test_sessions_end_where_a_user_paused(
    spark: SparkSession, server: StreamServer, tmp_path: pathlib.Path
) -> None:
    chance = random.Random(5)
    minute, visits, last = 0, {}, {}
    for _ in range(200):
        minute += chance.choice([1, 2, 9, 31])
        user = chance.choice("abc")
        server.client.xadd("clicks", {"user": user, "page": "/"}, id=f"{BEGIN + minute * MINUTE}-0")
        # To Spark a pause of exactly half an hour is still within a visit.
        if user not in last or minute - last[user] > 30:
            visits[user, minute] = 0
            begun = minute
        else:
            begun = max(at for who, at in visits if who == user)
        visits[user, begun] += 1
        last[user] = minute
    for _ in range(2):  # what the first run learns of time lets the second give out what is over
        minute += 1000
        server.client.xadd("clicks", {"user": "z", "page": "/"}, id=f"{BEGIN + minute * MINUTE}-0")
        example("sessions").run(spark, server.url, "clicks", "visits", tmp_path / "checkpoint")
    found = [(each["user"], int(each["pages"])) for each in texts(server, "visits") if each["user"] != "z"]
    assert sorted(found) == sorted((user, pages) for (user, _), pages in visits.items())


def test_orders_get_the_prices_of_their_items(
    spark: SparkSession, server: StreamServer, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "prices.csv").write_text("item,price\npear,0.30\nplum,0.25\n")
    for item, count in (("pear", 3), ("plum", 4), ("fig", 5)):
        server.client.xadd("orders", {"item": item, "count": count})
    for _ in range(2):  # the second run finds nothing new
        example("enrich").run(spark, server.url, "orders", tmp_path / "prices.csv", tmp_path / "out")
    rows = spark.read.parquet(str(tmp_path / "out" / "rows")).collect()
    assert {row.item: row.total for row in rows} == {
        "pear": Decimal("0.90"),
        "plum": Decimal("1.00"),
        "fig": None,
    }
    assert len(rows) == 3


def test_a_change_log_becomes_the_table_that_applying_it_makes(
    spark: SparkSession, server: StreamServer, tmp_path: pathlib.Path
) -> None:
    chance, table = random.Random(7), {}
    for n in range(60):
        key, op = str(chance.randrange(12)), chance.choice(["put", "put", "delete"])
        # Twelve changes in one millisecond: as text 9 would come after 10.
        server.client.xadd("changes", {"op": op, "key": key, "value": n}, id=f"{BEGIN + n // 12}-{n % 12}")
        if op == "put":
            table[key] = str(n)
        else:
            table.pop(key, None)
    made = example("latest").run(spark, server.url, "changes", tmp_path, 30)
    assert {row.key: row.value for row in made.collect()} == table


def test_a_stream_is_copied_once_whatever_was_copied_before(
    spark: SparkSession, server: StreamServer, tmp_path: pathlib.Path
) -> None:
    server.fill("source", 500)
    for first in (500, 600):
        example("copy_stream").run(spark, server.url, "source", server.url, "copy", tmp_path / "checkpoint")
        server.fill("source", 100, first)
    assert texts(server, "copy") == texts(server, "source")[:600]


def test_an_archive_and_the_rest_of_its_stream_are_one_table(
    spark: SparkSession, server: StreamServer, tmp_path: pathlib.Path
) -> None:
    from headrace.pipeline.archiving.archive_streams import archive_streams

    server.fill("history", 300)
    archive_streams(spark, server.url, "history", tmp_path / "archive")
    server.client.xtrim("history", minid="1000250-0", approximate=False)
    server.fill("history", 100, 300)
    table = example("history").history(spark, server.url, "history", tmp_path / "archive")
    assert sorted(int(row.fields["n"]) for row in table.collect()) == list(range(400))


def test_a_backfill_has_each_entry_of_archive_and_stream_once(
    spark: SparkSession, server: StreamServer, tmp_path: pathlib.Path
) -> None:
    from headrace.pipeline import archive
    from headrace.spark import DataLoss

    server.fill("backfill", 300)
    archive("backfill", to=tmp_path / "archive", url=server.url, spark=spark)
    server.client.xtrim("backfill", minid="1000250-0", approximate=False)
    server.fill("backfill", 100, 300)

    def numbers(out: str) -> list[int]:
        rows = example("backfill").run(spark, server.url, "backfill", tmp_path / "archive", tmp_path / out)
        return sorted(int(row._fields["n"]) for row in rows.collect())

    assert numbers("rows") == list(range(400))
    archive("backfill", to=tmp_path / "archive", url=server.url, spark=spark)
    server.fill("backfill", 100, 400)
    assert numbers("rows") == list(range(500)), "it continues from the checkpoint"
    assert numbers("again") == list(range(500))
    server.client.xtrim("backfill", minid="1000450-0", approximate=False)
    with pytest.raises(DataLoss, match="50 entries between them were trimmed"):
        numbers("lost")


@pytest.mark.slow
def test_a_declarative_pipeline_makes_tables_of_a_stream(
    spark: SparkSession, server: StreamServer, tmp_path: pathlib.Path
) -> None:
    for needed in ("grpc_status", "yaml"):
        pytest.importorskip(needed, reason="pip install 'pyspark[pipelines]'")
    server.client.delete("orders")
    folder = tmp_path / "declarative"
    shutil.copytree(pathlib.Path(__file__).parent.parent.parent / "examples" / "declarative", folder)
    spec = folder / "spark-pipeline.yml"
    said = spec.read_text().replace("redis://127.0.0.1:7777", server.url)
    spec.write_text(said.replace("/tmp/headrace-pipeline", str(tmp_path / "storage")))
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
        "SPARK_TESTING": "1",
    }
    env |= {"PYSPARK_PYTHON": sys.executable, "PATH": f"{pathlib.Path(sys.executable).parent}:{env['PATH']}"}
    env.pop("SPARK_HOME")  # the short one of these tests has no script for pipelines
    for item, count in (("pear", 3), ("fig", 1), ("pear", 4)):
        server.client.xadd("orders", {"item": item, "count": count})
    command = ["spark-pipelines", "run", "--spec", str(spec)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = spark.read.parquet(str(folder / "spark-warehouse" / "sales")).collect()
    assert sorted((row.item, row["count"]) for row in rows) == [("fig", 1), ("pear", 7)]
