"""Cold files of a program in an object store: headrace.open(cold_store=), here a directory."""

import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace.errors import CommandError, HeadraceError, UsageError
from support.waiting import wait_until

ENTRIES = 4000
LIMITS = {"fsync": "no", "hot_memory": "100kb", "cold_local_bytes": 0, "cold_cache_memory": "1mb"}


def fill(path: Path, url: str, **more: object) -> None:
    """Fill a stream; closing the database seals its cold file."""
    with headrace.open(path, cold_store=url, **LIMITS | more) as db:
        for first in range(0, ENTRIES, 500):
            db.backend.add_many(b"s", [{"n": n, "text": "x" * 60} for n in range(first, first + 500)])
        wait_until(lambda: db.backend.engine.cold_storage.data_bytes() <= 100 << 10)
        db.compact()


def numbers(db: headrace.Database) -> list[int]:
    return [int(entry[1][1]) for entry in db.execute("XRANGE", "s", "-", "+")]


def local(path: Path) -> list[Path]:
    return list((path / "appendonlydir/cold").glob("*.cold"))


def test_entries_in_the_store_are_read_as_before(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    fill(tmp_path / "data", url)
    assert local(tmp_path / "data")
    with headrace.open(tmp_path / "data", cold_store=url, **LIMITS) as db:
        wait_until(lambda: not local(tmp_path / "data"))
        assert db.info().cold_store_files > 0 and db.info().cold_store_error == ""
        assert numbers(db) == list(range(ENTRIES))
        db.compact()
        db.backup(tmp_path / "copy")
        assert db.execute("CONFIG", "GET", "cold-store") == [b"cold-store", url.encode()]
        assert db.execute("CONFIG", "GET", "cold-local-bytes") == [b"cold-local-bytes", b"0"]
    with headrace.open(tmp_path / "copy") as db:  # all entries are in it
        assert numbers(db) == list(range(ENTRIES))
    with headrace.open(tmp_path / "data", cold_store=url) as db:
        assert numbers(db) == list(range(ENTRIES))
        (tmp_path / "store").rename(tmp_path / "lost")
    with pytest.raises(HeadraceError, match="does not have the cold files of this data directory"):
        headrace.open(tmp_path / "data", cold_store=url)
    with pytest.raises(HeadraceError, match="the file is in an object store; give its URL"):
        headrace.open(tmp_path / "data")


def test_a_lost_store_fails_reads_of_its_entries_only(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    fill(tmp_path / "data", url)
    with headrace.open(tmp_path / "data", cold_store=url, **LIMITS) as db:
        wait_until(lambda: not local(tmp_path / "data"))
        (tmp_path / "store").rename(tmp_path / "lost")
        with pytest.raises(CommandError, match=r"COLDERR the entries .* file://.*/store: "):
            numbers(db)
        assert len(db.execute("XREVRANGE", "s", "+", "-", "COUNT", 1)) == 1
        (tmp_path / "lost").rename(tmp_path / "store")
        assert numbers(db) == list(range(ENTRIES))


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must begin with s3://"):
        headrace.open(tmp_path, cold_store="http://host")
    with pytest.raises(UsageError, match="a database in memory has no files"):
        headrace.open(cold_store="s3://bucket/prefix")
    with pytest.raises(UsageError, match="cold_local_bytes"):
        headrace.open(tmp_path, cold_store="s3://bucket/prefix", cold_local_bytes=-1)


def test_without_the_package_an_error_says_what_to_install(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["obstore"] = None
import headrace
try:
    headrace.open({str(tmp_path)!r}, cold_store="s3://bucket/prefix")
except headrace.HeadraceError as error:
    print(error)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == "s3://bucket/prefix: an object store needs a package: pip install 'headrace[cloud]'\n"
