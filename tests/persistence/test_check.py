"""`headrace check`: what it reports of files, and what `--fix` leaves."""

import os
import random
import resource
from pathlib import Path

import pytest

from headrace.engine.engine import Engine
from headrace.engine.foreign_commands import SkippingReplayer
from headrace.errors import HeadraceError, UsageError
from headrace.persistence.check import DatabaseCounts, check_file, fix
from headrace.persistence.data_directory import DiskDirectory
from headrace.persistence.rdb.versions import by_name
from headrace.persistence.rdb.writer import write_rdb
from support.speaking import encoded as record

NOW_MS = 1_800_000_000_000
WORK = [
    ["SET", "k", "v", "PXAT", NOW_MS + 1000],
    ["XADD", "s", "1-1", "f", "v"],
    ["XADD", "s", "2-1", "f", "v"],
    ["XGROUP", "CREATE", "s", "g", "0"],
    ["XCLAIM", "s", "g", "alice", "0", "1-1", "FORCE", "JUSTID"],
    ["XGROUP", "CREATECONSUMER", "s", "g", "bob"],
]
MADE = DatabaseCounts(keys=2, expiring=1, strings=1, streams=1, entries=2, groups=1, consumers=2, pending=1)


LOG = b"".join(record(*words) for words in WORK)


def snapshot():
    engine = Engine()
    session = engine.create_session()
    for words in WORK:
        engine.execute(session, [str(word).encode() for word in words], NOW_MS)
    data = bytearray()
    write_rdb(engine.keyspace, data.extend, version=by_name("compatible"), now_ms=NOW_MS)
    return bytes(data)


def new_engine():
    engine = Engine()
    replayer = SkippingReplayer(engine, NOW_MS)
    return engine.keyspace, replayer.replay, replayer.skipped_counts


def check(path):
    return check_file(str(path), new_engine, NOW_MS)


def states(report):
    return [(os.path.basename(file.path), file.state) for file in report.files]


@pytest.fixture
def log(tmp_path):
    """A whole log: a snapshot as its base, two files of records."""
    directory = tmp_path / "appendonlydir"
    directory.mkdir()
    (directory / "a.aof.2.base.rdb").write_bytes(snapshot())
    (directory / "a.aof.2.incr.aof").write_bytes(record("SELECT", 1) + LOG)
    (directory / "a.aof.3.incr.aof").write_bytes(record("XADD", "s", "3-1", "f", "v"))
    (directory / "a.aof.manifest").write_text(
        "file a.aof.2.base.rdb seq 2 type b\nfile a.aof.1.incr.aof seq 1 type h\n"
        "file a.aof.2.incr.aof seq 2 type i\nfile a.aof.3.incr.aof seq 3 type i\n"
    )
    return directory


def test_a_snapshot_is_counted(tmp_path):
    path = tmp_path / "dump.rdb"
    path.write_bytes(snapshot())
    report = check(path)
    assert (report.kind, report.damage, report.databases) == ("snapshot", None, {0: MADE})
    (file,) = report.files
    assert file.version == "REDIS0010" and b"ctime" in file.aux and file.size == path.stat().st_size
    path.write_bytes(snapshot() + b"xyz")
    assert check(path).damage is None and "3 bytes after its end" in check(path).notes[0]


def test_a_log_is_counted_record_by_record(tmp_path):
    path = tmp_path / "x.aof"
    path.write_bytes(LOG + record("xadd", "s", "0-1", "f", "v"))
    report = check(path)
    assert (report.kind, report.damage, report.databases) == ("log", None, {0: MADE})
    assert report.command_counts == {"XADD": 3, "XGROUP": 2, "XCLAIM": 1, "SET": 1}
    assert report.files[0].record_count == 7 and "1 command failed" in report.notes[0]


@pytest.mark.parametrize("name", ["old.aof", "appendonly.aof.1.base.rdb"])
def test_a_snapshot_with_records_behind_it_is_a_log(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(snapshot() + record("DEL", "k"))
    report = check(path)
    assert (report.kind, report.damage, report.databases[0].strings) == ("log", None, 0)
    assert (report.files[0].version, report.command_counts) == ("REDIS0010", {"DEL": 1})


def test_a_whole_log_is_checked_by_any_of_its_names(log):
    for path in (log, log.parent, log / "a.aof.manifest"):
        report = check(path)
        assert report.damage is None and report.databases[1] == MADE
        assert report.databases[0].entries == 3
        assert states(report) == [(f"a.aof.{n}", "good") for n in ("2.base.rdb", "2.incr.aof", "3.incr.aof")]
        assert report.command_counts == {"SELECT": 1, "XADD": 3, "XGROUP": 2, "XCLAIM": 1, "SET": 1}
        assert report.notes == ["1 file of history, which servers do not read"]


def test_an_empty_log_is_good_and_an_empty_snapshot_is_not(tmp_path):
    (tmp_path / "x.incr.aof").write_bytes(b"")
    (tmp_path / "dump.rdb").write_bytes(b"")
    assert check(tmp_path / "x.incr.aof").damage is None
    report = check(tmp_path / "dump.rdb")
    assert report.damage.offset == 0 and not report.fixable


@pytest.mark.parametrize(
    ("tail", "state"),
    [
        (record("DEL", "k")[:-1], "cut"),
        (record("MULTI") + record("DEL", "k"), "cut"),
        (b"\0" * 100, "damaged"),
        (record("EXEC") + record("DEL", "k"), "damaged"),
    ],
)
def test_the_end_of_a_log_is_cut_where_the_damage_begins_and_a_copy_stays(tmp_path, tail, state):
    path = tmp_path / "x.incr.aof"
    path.write_bytes(LOG + tail)
    report = check(path)
    assert report.fixable and report.valid_bytes == report.damage.offset == len(LOG)
    assert states(report) == [("x.incr.aof", state)] and report.databases == {0: MADE}
    copy = fix(report)
    assert Path(copy).read_bytes() == LOG + tail and path.read_bytes() == LOG
    assert check(path).damage is None
    path.write_bytes(LOG + tail)
    with pytest.raises(UsageError, match="earlier fix"):
        fix(check(path))
    assert path.read_bytes() == LOG + tail


def test_nothing_is_cut_before_the_copy_is_durable(tmp_path, monkeypatch):
    path = tmp_path / "x.incr.aof"
    path.write_bytes(LOG + b"junk")
    synced = {}  # what, and how long the log was then
    fsync = os.fsync

    def watched(descriptor):
        synced[os.readlink(f"/proc/self/fd/{descriptor}")] = path.stat().st_size
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    copy = fix(check(path))
    assert synced == {copy: len(LOG) + 4, str(tmp_path): len(LOG) + 4, str(path): len(LOG)}


def test_a_disk_too_full_for_the_copy_leaves_all_as_it_was(tmp_path):
    path = tmp_path / "x.incr.aof"
    path.write_bytes(LOG * 100 + b"junk")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(LOG) * 50, before[1]))
    try:
        with pytest.raises(OSError, match=r"."):
            fix(check(path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == [path.name]
    fix(check(path))
    assert path.read_bytes() == LOG * 100


def test_only_the_last_file_of_a_log_is_fixed(log):
    middle, last = log / "a.aof.2.incr.aof", log / "a.aof.3.incr.aof"
    good = last.read_bytes()
    last.write_bytes(good + b"junk")
    report = check(log)
    assert report.fixable and report.damage.file == str(last) and report.valid_bytes == len(good)
    with open(middle, "ab") as file:
        file.write(b"junk")
    report = check(log)
    assert not report.fixable and "not the last" in report.obstacle and report.damage.file == str(middle)
    assert [state for _, state in states(report)] == ["good", "damaged", "not read"]
    last.write_bytes(b"")
    report = check(log)
    assert report.fixable
    fix(report)
    assert check(log).damage is None


def test_a_snapshot_is_never_cut(tmp_path, log):
    data = snapshot()
    rng = random.Random(3)
    for path in (tmp_path / "dump.rdb", log / "a.aof.2.base.rdb", tmp_path / "old.aof"):
        for cut in (5, 9, len(data) - 1, *(rng.randrange(9, len(data)) for _ in range(5))):
            path.write_bytes(data[:cut])
            report = check(path)
            assert report.damage.offset <= cut and not report.fixable
            assert "a snapshot cannot be truncated" in report.obstacle
            assert report.damage.file == str(path)
    assert not check(log).fixable


def test_a_file_that_is_not_a_log_is_not_fixed(tmp_path):
    for text in (b"# A text\n\nof lines\n", b"hello", b"\x89PNG"):
        path = tmp_path / "x"
        path.write_bytes(text)
        report = check(path)
        assert not report.fixable and "it is not a log and not a snapshot" in report.obstacle


def test_a_bad_manifest_is_reported(log):
    manifest = log / "a.aof.manifest"
    manifest.write_text(manifest.read_text() + "\n")
    report = check(log)
    assert not report.fixable and report.damage.file == str(manifest) and "blank" in report.damage.what
    manifest.write_text("file gone.aof seq 1 type i\n")
    assert "gone.aof" in check(log).damage.what


def test_a_path_without_a_log_is_a_usage_error(tmp_path, log):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="no manifest"):
        check(empty)
    (log / "b.aof.manifest").write_text("file a.aof.2.incr.aof seq 2 type i\n")
    with pytest.raises(UsageError, match="more than one"):
        check(log)


def test_a_log_in_use_is_not_fixed(log):
    last = log / "a.aof.3.incr.aof"
    good = last.read_bytes()
    last.write_bytes(good + b"junk")
    report = check(log)
    server = DiskDirectory(str(log.parent))
    server.lock()
    with pytest.raises(HeadraceError, match="in use by process"):
        fix(report)
    server.unlock()
    last.write_bytes(good + b"junk, more")
    with pytest.raises(HeadraceError, match="changed while"):
        fix(report)
    assert sorted(os.listdir(log)) == sorted(
        ["a.aof.2.base.rdb", "a.aof.2.incr.aof", last.name, "a.aof.manifest"]
    )


@pytest.mark.parametrize("name", ["HSET", "JSON.SET", "XNEW", "xgroup new"])
def test_a_command_of_another_server_is_counted_and_not_damage(tmp_path, name):
    path = tmp_path / "a.incr.aof"
    path.write_bytes(LOG + record(*name.split(), "k", "v") + record("SET", "k", "2"))
    report = check(path)
    assert report.damage is None and states(report) == [("a.incr.aof", "good")]
    assert dict(report.foreign_counts) == {f"{name.split()[0].upper()} command": 1}


def test_a_name_that_no_command_can_have_is_damage(tmp_path):
    path = tmp_path / "a.incr.aof"
    path.write_bytes(LOG + record(b"X\0DD", "k", "v"))
    report = check(path)
    assert report.damage is not None and not report.foreign_counts and report.valid_bytes == len(LOG)


@pytest.mark.parametrize("data", [b"REDIS0099", b"REDIS0010\x06\x01kx", b"REDIS0010\xf6"])
def test_what_cannot_be_skipped_ends_the_check_without_damage(tmp_path, data):
    path = tmp_path / "dump.rdb"
    path.write_bytes(data)
    report = check(path)
    assert report.damage is None and report.unreadable_data is not None
    assert states(report) == [("dump.rdb", "foreign")]
