"""Damage in the files of an archive is found, and the file is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.archive.files import read_archive
from headrace.archive.verification import FileCheck, check_files
from headrace.cli.main import main
from headrace.errors import HeadraceError
from headrace.pipeline.querying.duckdb_query import run_sql
from headrace.pipeline.replaying.replay_entries import replay_entries
from headrace.pipeline.replaying.source import ReplaySource
from support.archives import ArchiveMaker, Entry, damage_column
from support.stream_server import StreamServer

COUNT = 2000
VALUES = "fields.key_value.value"
ENTRIES: list[Entry] = [(f"{n}-0", {"n": n, "text": f"{n * 7919:020x}"}) for n in range(1, COUNT + 1)]


@pytest.fixture
def maker(tmp_path: Path) -> ArchiveMaker:
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add_written("s", ENTRIES)
    maker.remember({"s": f"{COUNT}-0"})
    return maker


def only_file(maker: ArchiveMaker) -> Path:
    [file] = read_archive(maker.location).files
    return maker.directory / file.path


def flip_footer(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)


def cut_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a page": (lambda path: damage_column(path, VALUES), "has other bytes than it was written with"),
    "the footer": (flip_footer, "has other bytes than it was written with"),
    "the end": (cut_end, "bytes; it was written with "),
    "all of it": (Path.unlink, "is missing"),
}


def test_the_name_of_a_file_has_the_digest_of_its_bytes(maker: ArchiveMaker) -> None:
    [(file, result)] = check_files(read_archive(maker.location).files)
    assert result == FileCheck(None, COUNT) and file.digest is not None and file.digest in file.path


@pytest.mark.parametrize("damage", DAMAGES)
def test_check_names_the_damaged_file(
    maker: ArchiveMaker, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    maker.add_written("t", ENTRIES[:5])
    assert main(["check", str(maker.directory)]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines(), err) == (
        [f"{COUNT + 5:,} entries in 2 files of {maker.directory}", "All is good"],
        "",
    )
    path = maker.directory / read_archive(maker.location).files[0].path
    change, text = DAMAGES[damage]
    change(path)
    assert main(["check", str(maker.directory)]) == 1
    out, err = capsys.readouterr()
    [line] = [line for line in out.splitlines() if "part-" in line]
    assert line.startswith(f"{path.relative_to(maker.directory)} ") and text in line
    assert err == (
        f"headrace: {maker.directory}: 1 of 2 files damaged or missing; restore from a copy of the archive\n"
    )


def test_check_reads_files_without_a_digest(maker: ArchiveMaker, capsys: pytest.CaptureFixture[str]) -> None:
    [older] = maker.add("t", ENTRIES)
    assert main(["check", str(maker.directory)]) == 0
    assert "1 file without a digest" in capsys.readouterr().out
    [shorter] = maker.add("u", ENTRIES[:-1], committed=False)
    shutil.copy(maker.directory / shorter.path, maker.directory / older.path)
    assert main(["check", str(maker.directory)]) == 1
    assert f"{older.path} has " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["archive", "--fix"], "--fix is for logs"),
        (["nothing"], "does not exist"),
        (["ftp://host/x"], "ftp:// is not supported"),
        (["file.rdb", "--storage-option", "A=b"], "--storage-option is for an archive"),
    ],
)
def test_check_rejects_what_it_cannot_do(
    maker: ArchiveMaker,
    words: list[str],
    text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(maker.directory.parent)
    Path("file.rdb").touch()
    assert main(["check", *words]) == 2
    assert text in capsys.readouterr().err


def test_a_damaged_page_ends_query_and_replay_with_the_name_of_the_file(
    maker: ArchiveMaker, stream_server: StreamServer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = only_file(maker)
    damage_column(path, VALUES)
    named = f"{path} cannot be read: .*checksum.*; headrace check {maker.directory} lists damaged files"
    with (
        pytest.raises(HeadraceError, match=named),
        run_sql("SELECT max(text) FROM s", stream_server.url, archive=maker.location) as result,
    ):
        result.rows.read_all()
    with pytest.raises(HeadraceError, match=named):
        replay_entries(
            ReplaySource("s", stream_server.url, maker.location), stream_server.url, "copy", name="r"
        )
    assert stream_server.client.exists("copy") == 0
    words = ["replay", "--stream", "s", "--archive", str(maker.directory), "--into", "copy"]
    assert main([*words, "--url", stream_server.url]) == 1
    assert "is a server running there" not in capsys.readouterr().err


def test_a_page_that_cannot_be_decompressed_is_not_the_servers_fault(
    tmp_path: Path, stream_server: StreamServer
) -> None:
    """As in a file of an earlier version, whose pages have no checksums."""
    maker = ArchiveMaker(tmp_path / "archive")
    [file] = maker.add("s", ENTRIES, reached={"s": f"{COUNT}-0"})
    path = maker.directory / file.path
    data = bytearray(path.read_bytes())
    data[4 : path.stat().st_size // 2] = bytes(path.stat().st_size // 2 - 4)
    path.write_bytes(data)
    with pytest.raises(HeadraceError, match=f"{path} (cannot be read|is damaged)"):
        replay_entries(
            ReplaySource("s", stream_server.url, maker.location), stream_server.url, "copy", name="r"
        )


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    """Return a function that writes a whole Parquet file again, with other contents."""

    def rewrite(path: Path) -> None:
        pq.write_table(change(pq.read_table(path, partitioning=None)), path)

    return rewrite


def with_column(table: pa.Table, name: str, values: list[object]) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


# Whole files that another program has put in place of a file of the archive.
REPLACED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no IDs": (rewritten(lambda table: table.drop(["id"])), "it has no column of IDs"),
    "numbers as IDs": (
        rewritten(lambda table: with_column(table, "id", list(range(COUNT)))),
        "it has no column of IDs",
    ),
    "null IDs": (
        rewritten(
            lambda table: table.set_column(
                table.schema.get_field_index("id"), "id", pa.nulls(COUNT, pa.string())
            )
        ),
        "an entry has no ID",
    ),
    "fewer entries": (
        rewritten(lambda table: table.slice(1)),
        f"it has {COUNT - 1:,} entries; the table says",
    ),
    "texts in _exact": (
        rewritten(lambda table: with_column(table, "_exact", ["x"] * COUNT)),
        "it has a column _exact of the type string",
    ),
    "a directory": (as_directory, "is a directory"),
    "nothing": (Path.unlink, "is missing"),
}


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("name", REPLACED)
def test_a_file_that_was_replaced_ends_each_command_with_one_line(
    tmp_path: Path, stream_server: StreamServer, name: str, typed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())]) if typed else None
    maker = ArchiveMaker(tmp_path / "archive", schema)
    [file] = maker.add("s", ENTRIES, reached={"s": f"{COUNT}-0"})
    stream_server.client.delete("s")
    stream_server.client.xadd("s", {"n": 1, "text": "x"}, f"{COUNT + 1}-0")
    change, text = REPLACED[name]
    change(maker.directory / file.path)
    archive, url = ["--archive", str(maker.directory)], ["--url", stream_server.url]
    for words in (
        ["query", "SELECT count(*), max(text) FROM s", *archive, "--archive-only"],
        ["query", "SELECT * FROM s", *archive, *url],
        ["replay", "--stream", "s", *archive, "--into", "copy", *url],
    ):
        assert main(words) == 1
        err = [line for line in capsys.readouterr().err.splitlines() if line.startswith("headrace: ")]
        assert len(err) == 1
        assert f"{maker.directory}/{file.path} " in err[0] and text in err[0]
        assert "archive-only" not in err[0]  # the server is not at fault
    assert stream_server.client.exists("copy") == 0


def test_check_continues_after_a_file_that_cannot_be_opened(
    maker: ArchiveMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    maker.add_written("t", ENTRIES[:5])
    as_directory(maker.directory / read_archive(maker.location).files[0].path)
    assert main(["check", str(maker.directory)]) == 1
    out, err = capsys.readouterr()
    assert "cannot be read" in out and "is a directory" in out
    assert "1 of 2 files damaged or missing" in err
