"""Jobs and commands that need no PySpark run where importing it raises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import redis

from headrace.positions.position import Position
from support.archives import ArchiveMaker, Entry, publish

# Makes importing PySpark fail, as if it was not installed.
WITHOUT_SPARK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""
COMMAND = """
from headrace.cli.main import main
sys.exit(main())
"""
FUNCTIONS = """
import headrace.pipeline
import headrace.spark
file, archive, url = sys.argv[1:]
print(headrace.pipeline.load(file, stream="s", url=url).added)
print(headrace.spark.offsets_after_archive(archive, url=url))
[done] = headrace.pipeline.trim("s", archive=archive, no_groups_ok=True, url=url)
print(done.removed)
print(headrace.pipeline.replay("s", into="t", archive=archive, url=url).added)
"""
SQL = """
import headrace
query, url, archive, columns = sys.argv[1:]
declared = {"": columns} if columns else None
for row in headrace.sql(query, url or None, archive=archive or None, columns=declared).to_pylist():
    print(*row.values())
"""


def start(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process without PySpark."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WITHOUT_SPARK + program, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True)


def run(*arguments: str, program: str = COMMAND) -> str:
    """Run a program without PySpark; return what it prints."""
    done = start(program, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sql(query: str, url: str = "", archive: str = "", columns: str = "") -> list[str]:
    """Return the rows of headrace.sql() without PySpark, as lines."""
    done = start(SQL, query, url, archive, columns)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("schema", [None, pa.schema([("n", pa.int64())])])
def test_an_archived_stream_is_trimmed_and_replayed(
    tmp_path: Path, server_url: str, client: redis.Redis, schema: pa.Schema | None
) -> None:
    maker = ArchiveMaker(tmp_path / "archive", schema)
    entries = [(f"{n}-0", {"n": n}) for n in range(1, 7)]
    for entry_id, fields in entries:
        client.xadd("s", fields, id=entry_id)
    maker.add("s", entries[:4], reached={"s": "4-0"})
    publish(client, "s", str(Position("4-0")))
    run("trim", "--stream", "s", "--no-groups-ok", "--url", server_url)
    assert client.xlen("s") == 3
    archive = str(maker.directory)
    run("replay", "--stream", "s", "--into", "t", "--archive", archive, "--url", server_url)
    assert [fields["n"] for _, fields in client.xrange("t")] == ["1", "2", "3", "4", "5", "6"]


def test_the_functions_of_these_jobs_need_no_pyspark(
    tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    times = [1_400_000_000_000 + n for n in range(6)]
    (tmp_path / "rows.csv").write_text("ts\n" + "".join(f"{ms}\n" for ms in times))
    end = f"{times[3]}-0"
    maker.add("s", [(f"{ms}-0", {"ts": ms}) for ms in times[:4]], reached={"s": end})
    publish(client, "s", str(Position(end)))
    shown = run(str(tmp_path / "rows.csv"), str(maker.directory), server_url, program=FUNCTIONS)
    assert shown.split("\n") == ["6", f'{{"s": "{end}"}}', "3", "6", ""]
    assert [int(fields["ts"]) for _, fields in client.xrange("t")] == times


@pytest.fixture(params=[None, pa.schema([("n", pa.int64())])], ids=["map", "typed"])
def archive(tmp_path: Path, client: redis.Redis, request: pytest.FixtureRequest) -> str:
    """An archive of the first of three entries of a stream `s`; the first one is only there."""
    maker = ArchiveMaker(tmp_path / "archive", request.param)
    entries: list[Entry] = [("1-0", {"n": 1}), ("2-0", {"n": 2}), ("3-0", {"n": 3, "tags": '["a"]'})]
    maker.add("s", entries[:2], reached={"s": "2-0"})
    for entry_id, fields in entries[1:]:
        client.xadd("s", fields, entry_id)
    return str(maker.directory)


def test_sql_reads_a_server_and_an_archive(server_url: str, archive: str) -> None:
    query = "SELECT n, typeof(n) FROM s ORDER BY _id"
    assert sql(query, server_url) == ["2 BIGINT", "3 BIGINT"]
    assert sql(query, server_url, archive) == ["1 BIGINT", "2 BIGINT", "3 BIGINT"]
    assert sql(query, archive=archive) == ["1 BIGINT", "2 BIGINT"]
    assert sql(query, server_url, columns="n SMALLINT") == ["2 SMALLINT", "3 SMALLINT"]
    assert sql("SELECT n, tags[1] FROM s", server_url, columns="infer, tags ARRAY<STRING>") == [
        "2 None",
        "3 a",
    ]


def test_the_command_queries_and_describes_streams(server_url: str, archive: str) -> None:
    both = ("--csv", "--url", server_url, "--archive", archive)
    assert run("query", "SELECT sum(n) AS n FROM s", *both) == "n\n6\n"
    fields = ("--fields", "n DOUBLE, tags ARRAY<STRING>")
    assert run("query", "SELECT n, tags FROM s WHERE n > 2", *both, *fields) == 'n,tags\n3.0,"[""a""]"\n'
    assert run("query", "SHOW TABLES", *both).splitlines()[1] == "s,2,2,2-0"
    described = run("query", "DESCRIBE s", *both, *fields).splitlines()
    assert described[1] == "_stream,string,of every entry"
    assert described[-1] == "tags,array<string>,declared by --fields"


@pytest.mark.parametrize("option", [("--engine", "spark"), ("--follow",)])
def test_a_query_that_needs_spark_says_what_to_install(server_url: str, option: tuple[str, ...]) -> None:
    done = start(COMMAND, "query", "SELECT * FROM s", "--url", server_url, *option)
    assert done.returncode == 2
    assert done.stderr == (
        "headrace: --engine spark and --follow need PySpark: pip install 'headrace[spark]'\n"
    )
