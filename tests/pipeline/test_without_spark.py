"""Jobs and commands that need no PySpark run where importing it raises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import redis

from archives import ArchiveMaker, publish
from headrace.positions.position import Position

# Makes importing PySpark fail, as if it was not installed.
WITHOUT_PYSPARK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""
PROGRAM = f"{WITHOUT_PYSPARK}from headrace.cli.main import main; sys.exit(main())"
FUNCTIONS = f"""{WITHOUT_PYSPARK}
import headrace.pipeline
import headrace.spark
file, archive, url = sys.argv[1:]
print(headrace.pipeline.load(file, stream="s", url=url).added)
print(headrace.spark.offsets_after_archive(archive, url=url))
[done] = headrace.pipeline.trim("s", archive=archive, no_groups_ok=True, url=url)
print(done.removed)
print(headrace.pipeline.replay("s", into="t", archive=archive, url=url).added)
"""


def run(*arguments: str, program: str = PROGRAM) -> str:
    """Run a program in a process without PySpark; return what it prints."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


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
