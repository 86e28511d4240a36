"""Damage in the Delta log of an archive is found, and every command names the damaged file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headrace.archive.delta_log import LAST_CHECKPOINT_FILE, read_log
from headrace.archive.files import read_archive
from headrace.archive.merging import merge_small_files
from headrace.cli.main import main
from headrace.errors import HeadraceError, UsageError
from support.archives import ArchiveMaker, Entry
from support.stream_server import StreamServer

BATCHES, BATCH = 4, 50
DAY_MS = 86_400_000
TOTAL = BATCHES * BATCH
VERSION = 3  # a commit in the middle
NAME = f"{VERSION:020}.json"
NEWEST = f"{BATCHES:020}.json"


def batch(number: int) -> list[Entry]:
    return [(f"{number * BATCH + n}-0", {"n": n}) for n in range(BATCH)]


def add_batch(maker: ArchiveMaker, number: int) -> None:
    """Commit files and the position that they reach, as the job does."""
    entries = batch(number)
    files = maker.write_files("s", entries)
    maker.commit(files, {"s": entries[-1][0]})


@pytest.fixture
def maker(tmp_path: Path) -> ArchiveMaker:
    maker = ArchiveMaker(tmp_path / "archive")
    for number in range(BATCHES):
        add_batch(maker, number)
    return maker


def edit_adds(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a commit says of the files that it adds."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            change(line["add"])
    path.write_text("\n".join(map(json.dumps, lines)))


def without_count(add: dict[str, Any]) -> None:
    stats = json.loads(add["stats"])
    del stats["numRecords"]
    add["stats"] = json.dumps(stats)


def other_count(add: dict[str, Any]) -> None:
    add["stats"] = add["stats"].replace(f'"numRecords": {BATCH}', f'"numRecords": {BATCH - 1}')


def other_times(add: dict[str, Any]) -> None:
    stats = json.loads(add["stats"])
    stats["maxValues"] = stats["minValues"]
    add["stats"] = json.dumps(stats)


def without_adds(path: Path) -> None:
    path.write_text("\n".join(line for line in path.read_text().splitlines() if '"add"' not in line))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def empty(path: Path) -> None:
    path.write_bytes(b"")


# What happens to the log, what `headrace check` says of it, and whether the table can still be read.
DAMAGES: dict[str, tuple[str, Callable[[Path], object], str, bool]] = {
    "newest commit deleted": (NEWEST, Path.unlink, "is missing: the newest version was deleted", True),
    "commit deleted": (NAME, Path.unlink, "is missing", False),
    "first commit deleted": (f"{0:020}.json", Path.unlink, "is missing", False),
    "commit cut": (NAME, cut, "is damaged in line 3", False),
    "newest commit cut": (NEWEST, cut, "is damaged in line 3", False),
    "commit empty": (NAME, empty, "is empty", False),
    "no JSON": (NAME, lambda path: path.write_bytes(b"\x18" * 100), "is damaged in line 1", False),
    "no file": (NAME, without_adds, "adds 0 files with 0 entries; it was written with 1 files and 50", True),
    "no count": (NAME, lambda path: edit_adds(path, without_count), "has no count of entries", True),
    "other count": (NAME, lambda path: edit_adds(path, other_count), "with 49 entries; it was written", True),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_check_names_a_damaged_commit(
    maker: ArchiveMaker, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, change, text, is_readable = DAMAGES[damage]
    change(maker.directory / "_delta_log" / name)
    assert main(["check", str(maker.directory)]) == 1
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines() if line.startswith(f"_delta_log/{name} ")]
    assert len(lines) == 1 and text in lines[0] and "All is good" not in out
    assert len(err.splitlines()) == 1 and str(maker.directory) in err
    if is_readable:
        read_archive(maker.location)
    else:
        with pytest.raises(HeadraceError, match=f"_delta_log/{name} "):
            read_archive(maker.location)


def test_a_file_without_a_count_has_the_entries_that_are_in_it(
    maker: ArchiveMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_adds(maker.directory / "_delta_log" / NAME, without_count)
    assert sum(file.rows for file in read_archive(maker.location).files) == TOTAL
    assert main(["check", str(maker.directory)]) == 1
    assert f"has {BATCH} entries; the table does not say how many" in capsys.readouterr().out


def test_check_compares_times_and_counts_of_files_with_the_table(
    maker: ArchiveMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_adds(maker.directory / "_delta_log" / NAME, other_times)
    assert main(["check", str(maker.directory)]) == 1
    out = capsys.readouterr().out
    assert "has entries of other times than the table says" in out
    edit_adds(maker.directory / "_delta_log" / NAME, other_count)
    assert main(["check", str(maker.directory)]) == 1
    assert f"has {BATCH} entries; the table says {BATCH - 1}" in capsys.readouterr().out


@pytest.mark.parametrize("change", [Path.unlink, cut])
def test_a_damaged_checkpoint_is_named_with_what_to_do(
    maker: ArchiveMaker, change: Callable[[Path], object]
) -> None:
    DeltaTable(str(maker.directory)).create_checkpoint()
    log = maker.directory / "_delta_log"
    assert read_log(maker.location).damages == ()
    [checkpoint] = log.glob("*.checkpoint.parquet")
    change(checkpoint)
    with pytest.raises(HeadraceError, match="all commits are there, so delete it"):
        read_archive(maker.location)
    # With what the message says:
    (log / LAST_CHECKPOINT_FILE).unlink()
    checkpoint.unlink(missing_ok=True)
    assert sum(file.rows for file in read_archive(maker.location).files) == TOTAL


def test_commits_before_a_checkpoint_may_be_deleted(
    maker: ArchiveMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    DeltaTable(str(maker.directory)).create_checkpoint()
    add_batch(maker, BATCHES)
    log = maker.directory / "_delta_log"
    for version in (0, 1):
        (log / f"{version:020}.json").unlink()
    assert main(["check", str(maker.directory)]) == 0
    assert capsys.readouterr().out.endswith("All is good\n")
    (log / NAME).unlink()
    assert main(["check", str(maker.directory)]) == 1
    assert f"_delta_log/{NAME} is missing" in capsys.readouterr().out


def test_entries_that_the_positions_deny_are_reported(
    maker: ArchiveMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    maker.remember({"s": f"{BATCH}-0"})
    assert main(["check", str(maker.directory)]) == 1
    text = f"stream 's': the newest commit says that it is archived up to {BATCH}-0, but the files have"
    assert text in capsys.readouterr().out


def test_damaged_positions_are_an_error_that_names_the_commit(maker: ArchiveMaker) -> None:
    path = maker.directory / "_delta_log" / NEWEST
    path.write_text(path.read_text().replace('{\\"s\\": \\"', "{s: "))
    with pytest.raises(HeadraceError, match=f"the commit of version {BATCHES} .* restore"):
        read_archive(maker.location)


@pytest.mark.parametrize(
    "words",
    [
        ["query", "SELECT count(*) FROM s", "--archive", "DIR"],
        ["query", "SELECT count(*) FROM s", "--archive", "DIR", "--archive-only"],
        ["query", "SHOW TABLES", "--archive", "DIR"],
        ["replay", "--stream", "s", "--archive", "DIR", "--into", "copy"],
        ["archive", "--stream", "s", "--to", "DIR"],
        ["archive", "--stream", "s", "--to", "DIR", "--fields", "infer"],
        ["trim", "--stream", "s", "--archive", "DIR"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("change", [cut, Path.unlink, empty])
def test_commands_name_the_damaged_file_in_one_line(
    maker: ArchiveMaker,
    stream_server: StreamServer,
    words: list[str],
    change: Callable[[Path], object],
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream_server.client.delete("s")
    stream_server.client.xadd("s", {"n": 1}, "9999-0")
    change(maker.directory / "_delta_log" / NAME)
    url = [] if "--archive-only" in words else ["--url", stream_server.url]
    assert main([str(maker.directory) if word == "DIR" else word for word in words] + url) == 1
    err = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(err) == 1
    assert f"{maker.directory}: _delta_log/{NAME} is " in err[0] and "restore it" in err[0]
    assert "Kernel" not in err[0]


def test_an_archive_whose_log_is_empty_is_not_created_again(maker: ArchiveMaker) -> None:
    log = maker.directory / "_delta_log"
    for path in log.glob("*.json"):
        path.unlink()
    with pytest.raises(HeadraceError, match="are missing"):  # the newest version is recorded
        ArchiveMaker(maker.directory)
    shutil.rmtree(log)
    log.mkdir()
    with pytest.raises(UsageError, match="_delta_log has no commit any more; restore it"):
        ArchiveMaker(maker.directory)


def test_check_counts_files_of_killed_jobs_and_replaced_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    for number in range(3):
        add_batch(maker, number)
    old = {file.path: file.size for file in read_archive(maker.location).files}
    maker.commit(maker.write_files("s", [(f"{DAY_MS}-0", {"n": 1})]), {"s": f"{DAY_MS}-0"})
    assert merge_small_files(maker.table, set(old)).merged_files == len(old)
    [killed] = maker.write_files("s", [(f"{2 * DAY_MS}-0", {"n": 1})])
    partial = maker.directory / "stream=s/date=1970-01-01/part-x.tmp"
    partial.write_bytes(b"x" * 7)
    assert main(["check", str(maker.directory)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert f"Not referenced: 3 files of {sum(old.values()):,} bytes that were replaced or deleted" in out[1]
    assert {line for line in out if line.startswith("  ")} == {
        *(f"  {path} {size:,} bytes" for path, size in old.items()),
        f"  {killed.path} {killed.size:,} bytes (entries of 's' up to {2 * DAY_MS}-0)",
        "  stream=s/date=1970-01-01/part-x.tmp 7 bytes (not a whole file of entries)",
    }
    assert f"Not referenced: 2 files of {killed.size + 7:,} bytes that no version has" in "\n".join(out)
    assert f"the archive has it up to {DAY_MS}-0, and files that do not count up to" in out[-2]
    assert out[-1] == "No file that counts is damaged"


def test_check_of_a_directory_checks_each_archive_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "deeper/b"):
        add_batch(ArchiveMaker(tmp_path / name), 0)
    assert main(["check", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert [f"{BATCH} entries in 1 file of {tmp_path / name}" in out for name in ("a", "deeper/b")] == [
        True
    ] * 2
    (tmp_path / "a" / read_archive(ArchiveMaker(tmp_path / "a").location).files[0].path).unlink()
    assert main(["check", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert "1 of 1 file damaged or missing" in out and "All is good" in out
    assert err == f"headrace: {tmp_path}: 1 of 2 archives failed the check\n"


def test_check_of_a_directory_with_neither_log_nor_archive_says_what_to_name(
    tmp_path: Path, maker: ArchiveMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nothing").mkdir()
    assert main(["check", str(tmp_path / "nothing")]) == 2
    err = capsys.readouterr().err
    assert "neither a log, nor a snapshot, nor an archive" in err
    assert main(["check", str(maker.directory / "stream=s")]) == 2
    assert f"is within the archive {maker.directory}; name that" in capsys.readouterr().err
