"""Compaction of small files by a process that may die at any moment."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from archive_maker import DAY_MS, ROW_NOTE, ArchiveMaker

from headrace.errors import HeadraceError
from headrace.pipeline.archive_metadata import archive_lock
from headrace.pipeline.compaction import compact_archive
from headrace.spark.archive.files import archived_files, committed_files
from headrace.spark.source.offsets import parse_id

HOUR = DAY_MS // 24


class Killed(BaseException):
    """Raised where the process dies; no code handles it."""


def filled(directory: Path, batches: int = 8) -> ArchiveMaker:
    """Return an archive of two streams, with three batches per day, and a file that a killed writer left."""
    maker = ArchiveMaker(directory)
    for batch in range(batches):
        ids = [(batch * 8 * HOUR + n * HOUR, n) for n in range(8)]
        maker.add({"a": ids, "b:c/d": [(ms + 1, n) for ms, n in ids]})
    return maker


def counted(directory: Path) -> Counter[tuple[str, str]]:
    """Return the valid entries, and how often each one occurs."""
    return Counter(
        (file.stream, entry)
        for file in archived_files(directory)
        for entry in pq.read_table(file.path, columns=["id"], partitioning=None).column("id").to_pylist()
    )


def parquet_files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def test_a_past_day_is_merged_into_one_file_with_the_same_rows(tmp_path: Path) -> None:
    maker = filled(tmp_path / "x")
    before = counted(maker.directory)
    oldest = archived_files(maker.directory)[0].path
    old_rows = pq.read_table(oldest, partitioning=None)
    done = compact_archive(maker.directory)
    # Batches 0 to 5 are two days, the second of which may go on; the rest is not in a compact file yet.
    assert (done.before, done.after) == (2 * 2 * 6, 2 * 2)
    assert counted(maker.directory) == before and set(before.values()) == {1}
    days = Counter((file.stream, file.date) for file in archived_files(maker.directory))
    assert sorted(days.values()) == [1, 1, 1, 1, 4, 4]
    assert parquet_files(maker.directory) == committed_files(maker.directory)
    made = pq.ParquetFile(next(iter(sorted(oldest.parent.glob("*.parquet")))))
    assert made.metadata.num_row_groups == 1
    assert made.schema_arrow.metadata[ROW_NOTE] == b"a note of Spark's"
    assert str(made.schema_arrow.field("timestamp").type) == "timestamp[us, tz=UTC]"
    rows = made.read()
    assert rows.column("id").to_pylist() == sorted(rows.column("id").to_pylist(), key=parse_id)
    assert rows.slice(0, len(old_rows)).column("fields") == old_rows.column("fields")
    assert compact_archive(maker.directory).before == 0


def test_an_archive_is_continued_after_a_compaction(tmp_path: Path) -> None:
    maker = filled(tmp_path / "x", 6)
    compact_archive(maker.directory)
    for batch in range(6, 12):
        maker.add({"a": [(batch * 8 * HOUR, 0), (batch * 8 * HOUR + 1, 0)]})
    before = counted(maker.directory)
    compact_archive(maker.directory)
    assert counted(maker.directory) == before and set(before.values()) == {1}


def test_merged_files_stay_below_the_target_size(tmp_path: Path) -> None:
    maker = filled(tmp_path / "x")
    size = max(path.stat().st_size for path in committed_files(maker.directory))
    before = counted(maker.directory)
    done = compact_archive(maker.directory, target_bytes=2 * size)
    assert (done.before, done.after) == (24, 12)
    assert counted(maker.directory) == before
    assert compact_archive(maker.directory, target_bytes=size).before == 0


def test_replaced_files_can_be_kept_for_current_readers(tmp_path: Path) -> None:
    maker = filled(tmp_path / "x")
    old = committed_files(maker.directory)
    before = counted(maker.directory)
    compact_archive(maker.directory, keep_seconds=3600)
    compact_archive(maker.directory, keep_seconds=3600)
    assert all(path.exists() for path in old)
    assert counted(maker.directory) == before
    compact_archive(maker.directory)
    assert parquet_files(maker.directory) == committed_files(maker.directory)
    assert counted(maker.directory) == before


@pytest.mark.parametrize("torn", [False, True])
def test_a_compaction_killed_at_any_step_loses_and_duplicates_nothing(
    torn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Die at each call that changes the disk in turn: before it if `torn`, otherwise after it."""
    for last in range(1000):
        maker = ArchiveMaker(tmp_path / f"{last}", 2)
        for batch in range(4):
            maker.add({"a": [(batch * 8 * HOUR + n, n) for n in range(4)]}, files=1)
        before = counted(maker.directory)
        left = last

        def dying(call: Any, torn: bool = torn) -> Any:
            def die_in_turn(*words: Any, **more: Any) -> Any:
                nonlocal left
                left -= 1
                if left == -1 and torn:
                    raise Killed
                answer = call(*words, **more)
                if left == -1:
                    raise Killed
                return answer

            return die_in_turn

        survived = True
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", dying(Path.replace))
            patch.setattr(Path, "unlink", dying(Path.unlink))
            patch.setattr(os, "fsync", dying(os.fsync))
            patch.setattr(pq.ParquetWriter, "write_table", dying(pq.ParquetWriter.write_table))
            try:
                compact_archive(maker.directory)
            except Killed:
                survived = False
        assert counted(maker.directory) == before
        if survived:
            assert last > 15
            break
        # The archive grows before anybody compacts it again.
        maker.add({"a": [(40 * HOUR, 0)]})
        maker.add({"a": [(80 * HOUR, 0)]})
        before = counted(maker.directory)
        compact_archive(maker.directory)
        assert counted(maker.directory) == before
        assert parquet_files(maker.directory) == committed_files(maker.directory)
        assert not list((maker.directory / "_headrace").glob("*.json*"))[1:]
        assert not list(maker.directory.rglob(".*.draft"))


def test_an_archive_that_is_being_written_is_not_compacted(tmp_path: Path) -> None:
    maker = filled(tmp_path / "x")
    with archive_lock(maker.directory), pytest.raises(HeadraceError, match="by another process"):
        compact_archive(maker.directory)


def test_a_journal_that_the_log_contradicts_deletes_nothing(tmp_path: Path) -> None:
    maker = filled(tmp_path / "x")
    compact_archive(maker.directory, keep_seconds=3600)
    log = next((maker.directory / "_spark_metadata").glob("*.compact"))
    files = parquet_files(maker.directory)
    for each in (maker.directory / "_spark_metadata").iterdir():
        each.write_text("v1")
    assert log.exists()
    with pytest.raises(HeadraceError, match="lists neither the merged file"):
        compact_archive(maker.directory)
    assert parquet_files(maker.directory) == files
