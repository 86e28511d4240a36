"""headrace.pipeline.load, archive, trim and replay: what they return and raise, against real servers."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

import headrace.pipeline
from headrace.cli.main import main
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline import LoadResult, ReplayResult, TrimResult
from headrace.positions.position import Position
from support.archives import ArchiveMaker, publish

ROOT = Path(__file__).parent.parent.parent
UNREACHABLE = "redis://127.0.0.1:1"


def rows_file(folder: Path, count: int, bad: str = "") -> Path:
    """Return a CSV file whose rows have a time each; `bad` is a row in the middle."""
    path = folder / "rows.csv"
    rows = [f"{1_400_000_000_000 + n},{n}\n" for n in range(count)]
    rows.insert(count // 2, bad)
    path.write_text("ts,n\n" + "".join(rows))
    return path


def fill(client: redis.Redis, stream: str, count: int) -> None:
    for n in range(1, count + 1):
        client.xadd(stream, {"n": n}, id=f"{n}-0")


def numbers(client: redis.Redis, stream: str) -> list[int]:
    return [int(fields["n"]) for _, fields in client.xrange(stream)]


def printed(capfd: pytest.CaptureFixture[str]) -> str:
    shown = capfd.readouterr()
    return shown.out + shown.err


def test_importing_the_package_imports_no_job() -> None:
    program = (
        "import sys, headrace.pipeline as p; before = set(sys.modules); print(dir(p))\n"
        "assert not {'pyspark', 'pyarrow', 'redis', 'headrace.pipeline.loading.job'} & before\n"
        "assert p.trim.__module__ == 'headrace.pipeline.trimming.job'\n"
        "import headrace.pipeline.loading.loader\n"
        "assert callable(p.load) and callable(p.replay)\n"
        "assert 'pyspark' not in sys.modules"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(headrace.pipeline.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        getattr(headrace.pipeline, "lode")  # noqa: B009


# Load


def test_a_load_returns_its_counts_and_prints_nothing(
    tmp_path: Path, server_url: str, client: redis.Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[LoadResult] = []
    file = rows_file(tmp_path, 3000)
    done = headrace.pipeline.load(file, stream="s", url=server_url, on_progress=seen.append)
    assert (done.added, done.skipped, done.rejected, done.loaded) == (3000, 0, 0, 3000)
    assert (done.first_id, done.last_id) == ("1400000000000-0", "1400000002999-0")
    assert (done.time_column, done.rejects, done.uncertain) == ("ts", None, False)
    assert numbers(client, "s") == list(range(3000))
    assert [each.added for each in seen] == sorted(each.added for each in seen) and seen[-1].added == 3000
    again = headrace.pipeline.load(str(file), stream="s", url=server_url, resume=True)
    assert (again.added, again.skipped) == (0, 3000)
    assert printed(capfd) == ""


def test_bad_rows_are_counted_and_written(tmp_path: Path, server_url: str, client: redis.Redis) -> None:
    file = rows_file(tmp_path, 10, bad="only one\n")
    rejects = tmp_path / "bad.csv"
    done = headrace.pipeline.load(file, stream="s", url=server_url, skip_bad=True, rejects=rejects)
    assert (done.added, done.rejected, done.rejects) == (10, 1, rejects)
    assert rejects.read_text() == "ts,n\nonly one\n"


def test_an_error_says_how_many_rows_were_added(
    tmp_path: Path, server_url: str, client: redis.Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    file = rows_file(tmp_path, 10, bad="only one\n")
    with pytest.raises(UsageError, match=r"line 7: .*; 5 rows loaded; .* with --resume adds the others; --"):
        headrace.pipeline.load(file, stream="s", url=server_url)
    assert numbers(client, "s") == list(range(5))
    rows_file(tmp_path, 10)
    done = headrace.pipeline.load(file, stream="s", url=server_url, resume=True)
    assert (done.added, done.skipped) == (5, 5)
    assert numbers(client, "s") == list(range(10))
    assert printed(capfd) == ""


def test_a_load_of_the_command_is_resumed_by_the_function(
    tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    file = rows_file(tmp_path, 10, bad="only one\n")
    assert main(["load", str(file), "--stream", "s", "--url", server_url]) == 2
    rows_file(tmp_path, 10)
    assert headrace.pipeline.load(file, stream="s", url=server_url, resume=True).skipped == 5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"new_ids": True, "sort": True}, "--new-ids and --sort exclude each other"),
        ({"rejects": "x.csv"}, "add --skip-bad"),
        ({"job": ""}, "the name is empty"),
        ({"maxlen": 0}, "--maxlen: 0 is too low"),
        ({"batch": 0}, "--batch: 0 is not in the range 1 to 100,000"),
        ({"rate": float("nan")}, "--rate: expected a number above 0"),
        ({"options": {"path": "x"}}, "--option is for --format"),
        ({"format": "csv", "sort": True}, "--sort is for files that are read without --format"),
        ({"file": None}, "nothing to load"),
        ({"file": "s3://bucket/rows.csv"}, "s3:// is not supported"),
        ({"file": "-", "resume": True}, "needs the --job NAME"),
        ({"time_column": "x"}, "no column 'x'"),
    ],
)
def test_wrong_arguments_of_a_load_are_usage_errors(
    tmp_path: Path, server_url: str, wrong: dict[str, Any], message: str
) -> None:
    arguments = {"file": rows_file(tmp_path, 1), "stream": "s", "url": server_url} | wrong
    with pytest.raises(UsageError, match=message):
        headrace.pipeline.load(**arguments)


# Trim


def archived(folder: Path, client: redis.Redis, count: int, upto: int) -> ArchiveMaker:
    """Return an archive of a stream `s` of so many entries, up to one of them."""
    fill(client, "s", count)
    maker = ArchiveMaker(folder / "archive")
    maker.add("s", [(f"{n}-0", {"n": n}) for n in range(1, upto + 1)], reached={"s": f"{upto}-0"})
    publish(client, "s", str(Position(f"{upto}-0")))
    return maker


def test_a_trim_returns_what_it_removed_and_why_it_stopped(
    tmp_path: Path, server_url: str, client: redis.Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    maker = archived(tmp_path, client, 10, 8)
    [kept] = headrace.pipeline.trim("s", url=server_url)
    assert (kept.stream, kept.removed, kept.remaining) == ("s", 0, 10)
    assert "the stream has no consumer group" in kept.reasons[0]
    would = headrace.pipeline.trim(["s"], url=server_url, no_groups_ok=True, keep=5, dry_run=True)
    assert [(each.removed, each.remaining) for each in would] == [(5, 5)]
    removed: list[tuple[str, int]] = []
    [done] = headrace.pipeline.trim(
        pattern="s.*",
        url=server_url,
        archive=maker.directory,
        no_groups_ok=True,
        on_progress=lambda stream, count: removed.append((stream, count)),
    )
    assert isinstance(done, TrimResult) and (done.removed, done.remaining) == (7, 3)
    assert sum(count for _, count in removed) == 7 and {stream for stream, _ in removed} == {"s"}
    assert numbers(client, "s") == [8, 9, 10]
    assert printed(capfd) == ""


def test_trim_keeps_entries_of_a_time(tmp_path: Path, server_url: str, client: redis.Redis) -> None:
    archived(tmp_path, client, 10, 8)
    for keep_for in ("40000d", datetime.timedelta(days=40_000)):
        [done] = headrace.pipeline.trim("s", url=server_url, no_groups_ok=True, keep_for=keep_for)
        assert done.removed == 0 and "entries of the last 40000 d are kept" in done.reasons[0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "no streams given"),
        ({"streams": "s", "pattern": "s"}, "exclude each other"),
        ({"streams": "missing"}, "there is no stream 'missing'"),
        ({"pattern": "missing"}, "no stream matches 'missing'"),
        ({"streams": "s", "keep": 0}, "--keep: 0 is too low"),
        ({"streams": "s", "keep_for": "2 weeks"}, "not a duration"),
        ({"streams": "s", "keep_for": datetime.timedelta(-1)}, "--keep-for: a duration cannot be negative"),
        ({"streams": "s", "archive": "/nothing/there"}, "there is no archive"),
    ],
)
def test_wrong_arguments_of_a_trim_are_usage_errors(
    server_url: str, client: redis.Redis, wrong: dict[str, Any], message: str
) -> None:
    fill(client, "s", 1)
    with pytest.raises(UsageError, match=message):
        headrace.pipeline.trim(url=server_url, **wrong)


# Replay


def test_a_replay_returns_what_it_added_and_continues(
    tmp_path: Path, server_url: str, client: redis.Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    maker = archived(tmp_path, client, 10, 8)
    client.xtrim("s", minid="8-0", approximate=False)
    seen: list[ReplayResult] = []

    def replay(**more: Any) -> ReplayResult:
        return headrace.pipeline.replay("s", into="t", archive=maker.directory, url=server_url, **more)

    done = replay(on_progress=seen.append)
    assert (done.added, done.first_id, done.last_id, done.ids_kept) == (10, "1-0", "10-0", True)
    assert numbers(client, "t") == list(range(1, 11)) and seen[-1].added == 10
    again = replay()
    assert (again.added, again.was_complete, again.upto) == (0, True, "10-0")
    assert main(["replay", "--stream", "s", "--into", "t", "--archive", str(maker.directory), "--url",
                 server_url]) == 0  # fmt: skip
    assert "is complete up to 10-0, nothing was added" in printed(capfd)
    assert replay(restart=True, keep_ids=False).added == 10
    assert client.xlen("t") == 20
    assert printed(capfd) == ""


def test_a_replay_begins_and_ends_at_times(server_url: str, client: redis.Redis) -> None:
    for second in range(5):
        client.xadd("s", {"n": second}, id=f"{second * 1000}-1")
    start = datetime.datetime(1970, 1, 1, 0, 0, 1)
    end = datetime.datetime(1970, 1, 1, 1, 0, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    done = headrace.pipeline.replay("s", into="t", url=server_url, start=start, end=end, speed=1e6)
    assert done.added == 2 and numbers(client, "t") == [1, 2], "a time without a zone is in UTC"
    done = headrace.pipeline.replay("s", into="u", url=server_url, start="2000-1", end="3000-1")
    assert numbers(client, "u") == [2, 3]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"archive_only": True}, "--archive-only needs an --archive"),
        ({"speed": 0}, "--speed: expected a number above 0"),
        ({"speed": "max"}, "--speed: expected a number above 0, or None for no limit, not 'max'"),
        ({"start": "5-0", "end": "2-0"}, "--from 5-0 is not before --to 2-0"),
        ({"start": "soon"}, "neither an ID nor a time"),
        ({"into": "s"}, "is the stream itself"),
        ({"stream": "missing"}, "there is no stream 'missing'"),
    ],
)
def test_wrong_arguments_of_a_replay_are_usage_errors(
    server_url: str, client: redis.Redis, wrong: dict[str, Any], message: str
) -> None:
    fill(client, "s", 1)
    arguments = {"stream": "s", "into": "t", "url": server_url} | wrong
    with pytest.raises(UsageError, match=message):
        headrace.pipeline.replay(arguments.pop("stream"), **arguments)


def test_a_server_that_is_not_there_is_one_error_of_headrace(tmp_path: Path) -> None:
    file = rows_file(tmp_path, 1)
    for job in (
        lambda: headrace.pipeline.load(file, stream="s", url=UNREACHABLE),
        lambda: headrace.pipeline.trim("s", url=UNREACHABLE),
        lambda: headrace.pipeline.replay("s", into="t", url=UNREACHABLE),
    ):
        with pytest.raises(HeadraceError, match=r"127\.0\.0\.1:1"):
            job()


GOOD = """
from pathlib import Path
from datetime import datetime, timedelta
import headrace.pipeline
import headrace.spark

loaded: int = headrace.pipeline.load(Path("a.csv"), stream="s", null=["NA"], rate=5).added
job = headrace.pipeline.archive(["s", "t"], to=Path("archive"), keep=timedelta(days=90), fields="infer")
size: tuple[int, int] = (job.entries, job.days)
removed: int = sum(each.removed for each in headrace.pipeline.trim("s", keep_for="2h"))
added: int = headrace.pipeline.replay("s", into="t", start=datetime(2026, 1, 1), speed=60).added
offsets: str = headrace.spark.offsets_after_archive(Path("archive"), ["s"], url="redis://127.0.0.1")
"""
BAD = {
    'null=["NA"]': "null=5",
    'stream="s", null': "null",
    'to=Path("archive"), keep': "keep",
    'fields="infer"': "fields=3",
    'keep_for="2h"': "keep_for=2",
    "each.removed": "each.lost",
    "speed=60": 'speed="max"',
    "offsets: str": "offsets: bytes",
}


def test_mypy_checks_the_arguments_of_jobs(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    files = {"good": GOOD}
    for n, (right, wrong) in enumerate(BAD.items()):
        assert right in GOOD
        files[f"bad_{n}"] = GOOD.replace(right, wrong)
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    config = tmp_path / "mypy.ini"
    config.write_text(
        f"[mypy]\nstrict = True\nmypy_path = {ROOT / 'src'}:{ROOT / 'typings'}\n"
        "[mypy-pyarrow.*]\nignore_missing_imports = True\n"
    )
    shown, failed, _ = api.run(
        ["--config-file", str(config), "--cache-dir", str(ROOT / ".mypy_cache" / "tests")]
        + [str(tmp_path / f"{name}.py") for name in files]
    )
    assert not failed
    wrong = {Path(line.partition(":")[0]).stem for line in shown.splitlines() if ": error:" in line}
    assert wrong == files.keys() - {"good"}, shown
