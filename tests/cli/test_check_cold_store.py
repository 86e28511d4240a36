"""`headrace check` and `export` of a log whose cold files are in an object store, here a directory."""

from pathlib import Path

import pytest

import headrace
from headrace.cli.main import main
from support.waiting import wait_until

ENTRIES = 4000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory whose cold files are in tmp_path/store only."""
    path, url = tmp_path / "data", f"file://{tmp_path}/store"
    limits = {"fsync": "no", "hot_memory": "100kb", "cold_local_bytes": 0, "cold_store": url}
    with headrace.open(path, **limits) as db:
        for first in range(0, ENTRIES, 500):
            db.backend.add_many(b"s", [{"n": n, "text": "x" * 60} for n in range(first, first + 500)])
        wait_until(lambda: db.backend.engine.cold_storage.data_bytes() <= 100 << 10)
        db.compact()
    with headrace.open(path, **limits):
        wait_until(lambda: not list((path / "appendonlydir/cold").glob("*.cold")))
    return path


def objects(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "store").glob("*.cold"))


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_files_in_the_store_are_read_if_its_url_is_given(data, tmp_path, capsys, monkeypatch) -> None:
    before = sorted(data.rglob("*"))
    assert main(["check", str(data)]) == 1
    text = shown(capsys)
    assert "1 cold file in an object store, not read: commands of the log that need them fail here" in text
    assert "could not be read: give its URL, as in --cold-store s3://bucket/prefix" in text
    assert "All is good" not in text
    assert main(["check", "--cold-store", f"file://{tmp_path}/store", str(data)]) == 0
    assert "1 cold file in the object store, read and compared" in shown(capsys)
    monkeypatch.setenv("HEADRACE_COLD_STORE", f"file://{tmp_path}/store")
    assert main(["check", str(data)]) == 0
    assert "1 cold file in the object store, read and compared" in shown(capsys)
    assert sorted(data.rglob("*")) == before


def test_commands_that_need_unread_files_do_not_make_a_check_good(data, tmp_path, capsys) -> None:
    url = f"file://{tmp_path}/store"
    with headrace.open(data, hot_memory="100kb", cold_local_bytes=0, cold_store=url) as db:
        first = db.execute("XRANGE", "s", "-", "+", "COUNT", 1)[0][0]
        assert db.execute("XDEL", "s", first) == 1
    assert main(["check", str(data)]) == 1
    text = shown(capsys)
    assert "1 removal of the log could not be done" in text and "so the counts may be wrong" in text
    assert main(["check", "--cold-store", url, str(data)]) == 0
    text = shown(capsys)
    assert "could not be done" not in text and f"{ENTRIES - 1:,}" in text


def test_damage_in_the_store_is_found(data, tmp_path, capsys) -> None:
    (path,) = objects(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    assert main(["check", "--cold-store", f"file://{tmp_path}/store", str(data)]) == 1
    text = shown(capsys)
    assert f"file://{tmp_path}/store/{path.name}" in text and "other bytes than were uploaded" in text
    assert "the entries" in text and "cannot be read" in text
    path.unlink()
    assert main(["check", "--cold-store", f"file://{tmp_path}/store", str(data)]) == 1
    assert "not found" in shown(capsys)


def test_a_local_copy_and_the_one_in_the_store_are_both_read(data, tmp_path, capsys) -> None:
    (path,) = objects(tmp_path)
    name = path.name.partition("-")[0] + ".cold"
    (data / "appendonlydir/cold" / name).write_bytes(path.read_bytes())
    path.write_bytes(b"?")
    assert main(["check", str(data)]) == 0
    assert main(["check", "--cold-store", f"file://{tmp_path}/store", str(data)]) == 1
    assert "other bytes than were uploaded" in shown(capsys)


def test_an_export_reads_files_in_the_store(data, tmp_path, capsys) -> None:
    file = tmp_path / "all.rdb"
    assert main(["export", str(data), str(file)]) == 1
    assert "it is in an object store: give its URL" in shown(capsys) and not file.exists()
    assert main(["export", "--cold-store", f"file://{tmp_path}/store", str(data), str(file)]) == 0
    (tmp_path / "loaded").mkdir()
    file.rename(tmp_path / "loaded/dump.rdb")
    with headrace.open(tmp_path / "loaded") as db:
        assert [int(entry[1][1]) for entry in db.execute("XRANGE", "s", "-", "+")] == list(range(ENTRIES))


def test_another_url_is_a_wrong_argument(data, capsys) -> None:
    assert main(["check", "--cold-store", "http://host", str(data)]) == 2
    assert "must begin with s3://" in shown(capsys)
