"""No entry is in two files right after a run, and merging neither loses nor changes an entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.archive import merging as archive_merge
from headrace.archive.creation import create_or_open
from headrace.archive.files import read_archive
from headrace.archive.merging import merge_small_files, small_file_groups
from headrace.archive.table import ArchiveTable
from headrace.archive.writer import write_days
from headrace.errors import HeadraceError
from headrace.pipeline.archiving.tasks import FileMerger
from support.archives import ArchiveMaker, Entry, counted_entries, damage_column

DAY = 24 * 3600 * 1000


@pytest.fixture
def maker(tmp_path: Path) -> ArchiveMaker:
    return ArchiveMaker(tmp_path / "archive")


def entries(first: int, count: int) -> list[Entry]:
    """Return entries of one an hour."""
    return [(f"{n * DAY // 24}-0", {"n": n, "text": "x" * (n % 5)}) for n in range(first, first + count)]


def opened(maker: ArchiveMaker) -> ArchiveTable:
    return create_or_open(maker.location, maker.schema, "UTC")


def on_disk(maker: ArchiveMaker) -> list[Path]:
    """Return the files of an archive, also those that do not count."""
    return [path for path in maker.directory.rglob("part-*") if path.is_file()]


def test_the_pieces_of_a_day_are_merged_before_their_commit(maker: ArchiveMaker) -> None:
    pieces = [
        file
        for first in (0, 30, 60)
        for file in write_days(maker.batches(entries(first, 30)), "s", maker.location, "UTC")
    ]
    assert [file.date for file in pieces] == [f"1970-01-0{n}" for n in (1, 2, 2, 3, 3, 4)]
    groups = list(small_file_groups(pieces))
    merger = FileMerger(maker.location, maker.table.opened_archive.columns)
    merged = [file for group in groups for file in merger.merge(group)]
    assert [(file.date, file.rows, file.first_ms) for file in merged] == [
        ("1970-01-02", 24, DAY),
        ("1970-01-03", 24, 2 * DAY),
    ]
    maker.table.commit([pieces[0], *merged, pieces[-1]], {})
    assert counted_entries(maker.location) == {("s", entry): 1 for entry, _ in entries(0, 90)}


def test_large_files_are_left_as_they_are(maker: ArchiveMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    files = maker.add("s", entries(0, 10)) + maker.add("s", entries(10, 10)) + maker.add("s", entries(20, 3))
    largest = max(file.size for file in files)
    monkeypatch.setattr(archive_merge, "MERGED_FILE_BYTES", 2 * largest)
    assert list(small_file_groups(files)) == [files[:2]]
    monkeypatch.setattr(archive_merge, "SMALL_FILE_BYTES", largest)
    assert largest not in {file.size for group in small_file_groups(files) for file in group}


def test_the_files_of_a_run_are_not_merged_by_this_run(maker: ArchiveMaker) -> None:
    maker.add_written("s", entries(0, 10))
    maker.add_written("s", entries(10, 5))
    earlier = {file.path for file in read_archive(maker.location).files}
    maker.add_written("s", entries(15, 30))
    done = merge_small_files(opened(maker), earlier)
    assert (done.merged_files, done.replacement_files) == (2, 1)
    assert len(on_disk(maker)) == 3 + 2  # of the first day the old ones and the new one; two of the second
    assert merge_small_files(opened(maker)).merged_files == 2
    assert counted_entries(maker.location) == {("s", entry): 1 for entry, _ in entries(0, 45)}


def test_merged_files_have_the_columns_of_all_of_them(maker: ArchiveMaker, tmp_path: Path) -> None:
    narrow = ArchiveMaker(tmp_path / "typed", pa.schema({"n": pa.int64()}))
    narrow.add("s", [("1-0", {"n": 1})])
    wide = ArchiveMaker(tmp_path / "typed", pa.schema({"n": pa.int64(), "price": pa.float64()}))
    wide.add("s", [("2-0", {"n": 2, "price": 0.5}), (f"{DAY}-0", {"n": 3, "price": 1.5})])
    assert merge_small_files(opened(wide)).merged_files == 2
    rows = DeltaTable(wide.directory).to_pyarrow_table(columns=["id", "n", "price"]).sort_by("n").to_pylist()
    assert rows == [
        {"id": "1-0", "n": 1, "price": None},
        {"id": "2-0", "n": 2, "price": 0.5},
        {"id": f"{DAY}-0", "n": 3, "price": 1.5},
    ]


def test_a_damaged_file_is_named_and_not_merged(maker: ArchiveMaker) -> None:
    maker.add_written("s", entries(0, 10))
    maker.add_written("s", entries(10, 20))
    before = read_archive(maker.location)
    damage_column(maker.directory / before.files[1].path, "fields.key_value.value")
    with pytest.raises(HeadraceError, match=f"{before.files[1].path} cannot be read: .*checksum"):
        merge_small_files(opened(maker))
    assert read_archive(maker.location).files == before.files
    assert not list(maker.directory.rglob("*.tmp"))


def test_a_file_with_other_entries_than_the_table_says_is_not_merged(maker: ArchiveMaker) -> None:
    first = maker.add("s", entries(0, 10))[0]
    maker.add("s", entries(10, 20))
    [shorter] = maker.add("s", entries(0, 5), committed=False)
    maker.remember({"s": entries(10, 20)[-1][0]})
    before = read_archive(maker.location)
    (maker.directory / shorter.path).rename(maker.directory / first.path)
    with pytest.raises(HeadraceError, match="should have 24 entries, and have 19; they were not merged"):
        merge_small_files(opened(maker))
    assert read_archive(maker.location).files == before.files
    assert len(on_disk(maker)) == 3


def test_a_merge_whose_file_vanishes_is_taken_back(
    maker: ArchiveMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker.add("s", entries(0, 10))
    maker.add("s", entries(10, 20))
    before = read_archive(maker.location)
    table = opened(maker)
    swap = table._swap
    group = next(small_file_groups(file for file in before.files if str(file.date) == "1970-01-01"))
    [merged] = FileMerger(maker.location, before.columns).merge(group)
    swaps: list[tuple[Any, Any]] = []

    def vanish_then_swap(old: Any, new: Any) -> None:
        if not swaps:
            (maker.directory / merged.path).unlink()
        swaps.append((old, new))
        swap(old, new)

    monkeypatch.setattr(table, "_swap", vanish_then_swap)
    with pytest.raises(HeadraceError, match=f"1 file of this job, such as {merged.path}, were deleted"):
        table.replace_files(group, [merged])
    assert len(swaps) == 2
    assert read_archive(maker.location).files == before.files
    assert counted_entries(maker.location).total() == 30


def test_a_range_that_fails_leaves_no_files(maker: ArchiveMaker) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from maker.batches(entries(0, 60))
        raise HeadraceError("the server is gone")

    with pytest.raises(HeadraceError, match="the server is gone"):
        write_days(failing(), "s", maker.location, "UTC")
    assert on_disk(maker) == []
