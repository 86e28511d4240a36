"""Databases on disk: what is there again, what a refusing disk does, who else may open the directory."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import headrace
from headrace.errors import CommandError, DatabaseClosed, HeadraceError, NotOnDisk
from support.waiting import wait_until


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path / "appendonlydir"))


@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_what_was_written_is_there_again(tmp_path, fsync) -> None:
    with headrace.open(tmp_path / "new" / "one", fsync=fsync) as db:
        ids = db.backend.add_many(b"s", [{"n": n} for n in range(100)])
        db.execute("XGROUP", "CREATE", "s", "g", "0")
        db.execute("XREADGROUP", "GROUP", "g", "c", "COUNT", 7, "STREAMS", "s", ">")
        db.backend.request(b"SELECT", b"3")
    with headrace.open(tmp_path / "new" / "one") as db:
        assert [entry[0] for entry in db.execute("XRANGE", "s", "-", "+")] == ids
        assert db.execute("XPENDING", "s", "g")[0] == 7
        assert db.info().keys == 1
        assert db.info().fsync == "always"


def test_always_is_synced_when_the_call_returns(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        db.backend.add(b"s", b"*", {"a": "b"})
        log = db.backend.storage.log
        assert log.synced == log.written > 0
        db.backend.add_many(b"s", [{"a": "b"}] * 10)
        assert log.synced == log.written
        assert db.info().unsynced_bytes == 0


def test_a_batch_is_one_transaction_in_the_log(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        db.backend.add_many(b"s", [{"n": n} for n in range(3)])
    [incr] = [name for name in names(tmp_path) if name.endswith("incr.aof")]
    log = (tmp_path / "appendonlydir" / incr).read_bytes()
    assert log.count(b"MULTI") == log.count(b"EXEC") == 1
    assert log.count(b"XADD") == 3


def test_everysec_is_synced_by_the_timer_thread(tmp_path) -> None:
    with headrace.open(tmp_path, fsync="everysec") as db:
        log = db.backend.storage.log
        assert db.backend.timer is None
        db.backend.add(b"s", b"*", {"a": "b"})
        assert db.execute("WAITAOF", 1, 0, 10_000) == [1, 0]
        assert log.synced == log.written


def test_no_is_synced_for_whom_waits(tmp_path) -> None:
    with headrace.open(tmp_path, fsync="no") as db:
        db.backend.add(b"s", b"*", {"a": "b"})
        client = db.engine_session()
        client.send(b"XADD s * a b\r\nWAITAOF 1 0 10000\r\n")
        replies = client.receive(10)
        if not replies.endswith(b":0\r\n"):  # the second one may come by itself
            replies += client.receive(10)
        assert replies.startswith(b"$") and replies.endswith(b"\r\n*2\r\n:1\r\n:0\r\n")


def test_compact_writes_the_log_anew(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        for _ in range(200):
            db.execute("SET", "k", "x" * 1000)
        large = db.info().log_bytes
        db.compact()
        assert db.info().log_bytes < large / 20
        assert not [name for name in names(tmp_path) if name.startswith("temp")]
        db.backend.add(b"s", b"1-1", {"a": "b"})
    with headrace.open(tmp_path) as db:
        assert db.execute("GET", "k") == b"x" * 1000
        assert db.execute("XLEN", "s") == 1


def test_the_log_is_rewritten_when_it_has_grown(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        storage = db.backend.storage
        storage.rewrite_min_bytes = 20_000
        db.compact()
        for _ in range(200):
            db.execute("SET", "k", "x" * 1000)
        # A rewrite runs beside the writers, and the next one starts with a change.
        wait_until(lambda: db.execute("SET", "k", "x" * 1000) and db.info().log_bytes < 50_000)
    with headrace.open(tmp_path) as db:
        assert db.execute("GET", "k") == b"x" * 1000


def test_bgrewriteaof_is_done_by_the_timer_thread(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        for _ in range(50):
            db.execute("SET", "k", "x" * 1000)
        before = names(tmp_path)
        assert b"started" in db.execute("BGREWRITEAOF")
        wait = threading.Event()
        for _ in range(1000):
            if names(tmp_path) != before and db.info().log_bytes < 20_000:
                break
            wait.wait(0.01)
        assert db.info().log_bytes < 20_000


def test_memory_has_nothing_to_compact_and_no_path(tmp_path) -> None:
    with headrace.open() as db:
        db.compact()
        assert db.path is None
        assert db.info().fsync is None
        with pytest.raises(CommandError, match="memory only"):
            db.execute("BGREWRITEAOF")


class Broken:
    """A file whose disk is full, or whose syncs fail, as long as it is told to."""

    def __init__(self, file) -> None:
        self.file = file
        self.full = False
        self.bad = False

    def write(self, data):
        if self.full:
            raise OSError(28, "No space left on device")
        return self.file.write(data)

    def sync(self) -> None:
        if self.bad:
            raise OSError(5, "Input/output error")
        self.file.sync()

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_full_disk_refuses_writes_and_lets_reads_through_until_there_is_room(tmp_path, fsync) -> None:
    with headrace.open(tmp_path, fsync=fsync) as db:
        log = db.backend.storage.log
        log._file = broken = Broken(log._file)
        broken.full = True
        with pytest.raises(NotOnDisk, match=r"in memory, but not on the disk yet.*No space left"):
            db.backend.add(b"s", b"1-1", {"a": "b"})
        assert db.execute("XLEN", "s") == 1
        with pytest.raises(CommandError, match="No space left"):
            db.backend.add(b"s", b"*", {"a": "b"})
        assert "No space left" in db.info().disk_error
        broken.full = False
        wait_until(lambda: not db.info().disk_error)
        db.backend.add(b"s", b"2-1", {"a": "b"})
    with headrace.open(tmp_path) as db:
        assert [entry[0] for entry in db.execute("XRANGE", "s", "-", "+")] == [b"1-1", b"2-1"]


def test_after_a_failed_sync_the_log_is_written_anew_from_memory(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        db.backend.add(b"s", b"1-1", {"a": "b"})
        log = db.backend.storage.log
        log._file = broken = Broken(log._file)
        broken.bad = True
        with pytest.raises(NotOnDisk, match="Input/output"):
            db.backend.add(b"s", b"2-1", {"a": "b"})
        wait_until(lambda: not db.info().disk_error)
        db.backend.add(b"s", b"3-1", {"a": "b"})
    with headrace.open(tmp_path) as db:
        assert db.execute("XLEN", "s") == 3


def test_closing_on_a_full_disk_says_that_the_end_is_lost(tmp_path) -> None:
    db = headrace.open(tmp_path)
    db.backend.add(b"s", b"1-1", {"a": "b"})
    log = db.backend.storage.log
    log._file = broken = Broken(log._file)
    broken.full = True
    with pytest.raises(NotOnDisk):
        db.backend.add(b"s", b"2-1", {"a": "b"})
    with pytest.raises(NotOnDisk, match="last changes are not on the disk"):
        db.close()
    with headrace.open(tmp_path) as db:
        assert db.execute("XLEN", "s") == 1


def test_the_same_directory_twice_names_the_holder(tmp_path) -> None:
    with (
        headrace.open(tmp_path),
        pytest.raises(HeadraceError, match=r"in use by this process.*hand the Data.*or call its close\(\)"),
    ):
        headrace.open(tmp_path)
    with headrace.open(tmp_path):
        code = f"import headrace; headrace.open({str(tmp_path)!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"in use by process {os.getpid()} " in other.stderr
        assert f"headrace serve --dir {tmp_path}" in other.stderr
        assert "headrace.connect(" in other.stderr


def test_a_damaged_log_is_an_error_that_names_the_file(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        db.backend.add(b"s", b"*", {"a": "b"})
        db.backend.add(b"s", b"*", {"a": "b"})
    [incr] = [name for name in names(tmp_path) if name.endswith("incr.aof")]
    path = tmp_path / "appendonlydir" / incr
    data = bytearray(path.read_bytes())
    data[30] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(HeadraceError, match=incr):
        headrace.open(tmp_path)
    path.write_bytes(b"")
    headrace.open(tmp_path).close()  # the failed one has not kept the directory


def test_a_path_that_is_a_file_is_an_error(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadraceError, match="file"):
        headrace.open(tmp_path / "file")


def test_wrong_settings_are_said(tmp_path) -> None:
    with pytest.raises(HeadraceError, match="'always', 'everysec', 'no'"):
        headrace.open(fsync="sometimes")
    with pytest.raises(HeadraceError, match="stream_node_max_entries"):
        headrace.open(stream_node_max=5)
    with headrace.open(stream_node_max_entries=3) as db:
        assert db.execute("CONFIG", "GET", "stream-node-max-entries")[1] == b"3"


def test_a_closed_database_says_so(tmp_path) -> None:
    db = headrace.open(tmp_path)
    db.close()
    db.close()
    for call in (lambda: db.execute("PING"), db.compact, lambda: db.engine_session().receive(0)):
        with pytest.raises(DatabaseClosed, match="closed"):
            call()


def test_a_sync_that_nobody_has_begun_is_done_by_who_waits_for_it(tmp_path) -> None:
    """Else a writer would wait, with the lock that the timer thread needs, for the timer thread."""
    db = headrace.open(tmp_path, fsync="everysec")
    storage = db.backend.storage
    storage.timer_scheduled = True  # the timer thread is kept out of it
    db.backend.add(b"s", b"1-1", {"a": "b"})
    storage.log.tick(5000)
    assert storage.log.syncing
    db.compact()
    assert not storage.log.syncing
    db.backend.add(b"s", b"2-1", {"a": "b"})
    storage.log.tick(9000)
    db.close()
    with headrace.open(tmp_path) as again:
        assert again.execute("XLEN", "s") == 2
