"""Recovery: which files are read, what is repaired, and what stops it."""

import errno
import os
import shutil

import pytest

from headrace.engine.engine import Engine
from headrace.engine.replaying import Replayer
from headrace.errors import HeadraceError
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DiskDirectory
from headrace.persistence.rdb.versions import by_name
from headrace.persistence.rdb.writer import write_rdb
from headrace.persistence.recovery import recover
from support.speaking import encoded as record

NOW_MS = 1_800_000_000_000
MANIFEST = "appendonly.aof.manifest"


def snapshot(*requests, aof_base=False):
    """The RDB file of what those requests make."""
    engine = Engine()
    session = engine.create_session()
    for words in requests:
        engine.execute(session, [str(word).encode() for word in words], NOW_MS)
    assert not any(line.startswith(b"-") for line in session.reply.take().splitlines())
    data = bytearray()
    write_rdb(engine.keyspace, data.extend, version=by_name("compatible"), now_ms=0, aof_base=aof_base)
    return bytes(data)


class Place:
    """A data directory and starts on it."""

    def __init__(self, root):
        self.root, self.log = root, root / "appendonlydir"
        self.told = []

    def write(self, **files):
        """A log of base.rdb or base.aof (b1) and records (i1, i2, …), in the order given."""
        self.log.mkdir(exist_ok=True)
        lines = []
        for name, data in files.items():
            kind, number = name[0], int(name[1:])
            suffix = "incr.aof" if kind == "i" else "base.rdb" if data[:5] == b"REDIS" else "base.aof"
            file = f"appendonly.aof.{number}.{suffix}"
            (self.log / file).write_bytes(data)
            lines.append(f"file {file} seq {number} type {kind}\n")
        (self.log / MANIFEST).write_text("".join(lines))

    def start(self, appendonly=True, truncated_ok=True, fix_tail=True, files=None):
        self.engine = Engine()
        return recover(
            files or DiskDirectory(str(self.root)),
            LogFileNames(),
            self.engine.keyspace,
            Replayer(self.engine, NOW_MS).replay,
            appendonly=appendonly,
            dbfilename="dump.rdb",
            truncated_ok=truncated_ok,
            now_ms=NOW_MS,
            progress=lambda *told: self.told.append(told),
            fix_tail=fix_tail,
        )

    def fails(self, **options):
        before = self.bytes()
        with pytest.raises(HeadraceError) as caught:
            self.start(**options)
        assert self.bytes() == before
        assert "\n" not in str(caught.value) and not self.engine.keyspace.ignore_expiry
        return caught.value

    def bytes(self):
        return {str(p.relative_to(self.root)): p.read_bytes() for p in self.root.rglob("*") if p.is_file()}

    def values(self, database=0):
        return dict(self.engine.keyspace.databases[database].values)

    def incr(self, number):
        return self.log / f"appendonly.aof.{number}.incr.aof"


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize("appendonly", [True, False])
def test_an_empty_directory_loads_nothing_and_stays_empty(place, appendonly):
    assert place.start(appendonly) == (None, "nothing", [], 0, 0, [], "", {}, b"")
    assert not place.bytes()


def test_a_base_and_files_of_records_are_read_in_order(place):
    place.write(
        b4=snapshot(["SET", "a", 1], ["SET", "b", 1], aof_base=True),
        i4=record("SELECT", 2) + record("SET", "c", 1),
        i5=record("SET", "a", 2) + record("DEL", "b"),  # begins at database 0 again
        i7=b"",
    )
    got = place.start()
    assert (place.values(), place.values(2)) == ({b"a": b"2"}, {b"c": b"1"})
    assert (got.source_kind, got.key_count, got.command_count, got.notes) == ("log", 2, 4, [])
    assert got.files == [
        f"appendonlydir/appendonly.aof.{n}" for n in ("4.base.rdb", "4.incr.aof", "5.incr.aof", "7.incr.aof")
    ]
    assert [line.sequence for line in got.manifest.incrs] == [4, 5, 7]


def test_a_base_may_be_commands_or_a_snapshot_with_commands_behind_it(place):
    for base in (record("SET", "a", 1), snapshot(["SET", "a", 0]) + record("SET", "a", 1)):
        place.write(b1=base)
        assert place.start().manifest.base.file.startswith("appendonly.aof.1.base")
        assert place.values() == {b"a": b"1"}


def test_history_is_not_read(place):
    place.write(h1=b"junk", b2=record("SET", "a", 1), i2=b"")
    assert place.start().key_count == 1


def test_the_snapshot_is_read_when_the_log_is_off_or_has_never_been(place):
    (place.root / "dump.rdb").write_bytes(snapshot(["SET", "a", 1]))
    for appendonly in (False, True):
        got = place.start(appendonly)
        assert (got.manifest, got.source_kind, got.files, place.values()) == (
            None,
            "snapshot",
            ["dump.rdb"],
            {b"a": b"1"},
        )
    place.write(i1=record("SET", "b", 1))
    assert place.start(True).source_kind == "log" and place.values() == {b"b": b"1"}
    assert place.start(False).source_kind == "snapshot" and place.values() == {b"a": b"1"}


def test_expired_keys_are_dropped_from_a_snapshot_and_stay_in_a_log(place):
    data = snapshot(["SET", "dies", 1, "PXAT", NOW_MS + 1], ["SET", "stays", 1])
    data = data.replace((NOW_MS + 1).to_bytes(8, "little"), NOW_MS.to_bytes(8, "little"))[:-8] + bytes(8)
    (place.root / "dump.rdb").write_bytes(data)
    got = place.start(False)
    assert got.key_count == 1 and place.values() == {b"stays": b"1"} and "1 key had expired" in got.notes[0]
    place.write(b1=data, i1=record("PERSIST", "dies"))
    place.start()
    assert place.values() == {b"dies": b"1", b"stays": b"1"}
    assert place.engine.keyspace.databases[0].expiry(b"dies") == -1


def test_no_key_expires_while_its_log_is_read(place):
    past = NOW_MS - 1000
    place.write(
        i1=record("SET", "k", "v")
        + record("PEXPIREAT", "k", past)
        + record("APPEND", "k", "w")
        + record("PERSIST", "k")
        + record("XADD", "s", "1-1", "f", "v")
        + record("PEXPIREAT", "s", past)
        + record("XADD", "s", "1-2", "f", "v")
    )
    got = place.start()
    assert got.notes == []
    keyspace = place.engine.keyspace
    assert place.values()[b"k"] == b"vw" and place.values()[b"s"].length == 2
    assert not keyspace.ignore_expiry
    keyspace.now = NOW_MS
    assert keyspace.databases[0].keys() == [b"k"]


# Tails.


WHOLE = record("SET", "a", 1)
TAILS = {
    "record": record("SET", "b", 1)[:-1],
    "transaction": record("MULTI") + record("SET", "b", 1),
    "exec": record("MULTI") + record("SET", "b", 1) + record("EXEC")[:-3],
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_an_incomplete_tail_is_cut_off_once_and_noted(place, tail):
    place.write(i1=WHOLE + tail)
    got = place.start()
    assert place.values() == {b"a": b"1"} and place.incr(1).read_bytes() == WHOLE
    assert f"its last {len(tail)} bytes, from byte {len(WHOLE)} on, were cut off" in got.notes[0]
    assert str(got.manifest.incrs[0].file) in got.notes[0]
    assert place.start(truncated_ok=False).notes == []


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_an_incomplete_tail_stays_without_fix_tail(place, tail):
    place.write(i1=WHOLE + tail)
    got = place.start(fix_tail=False)
    assert place.values() == {b"a": b"1"} and place.incr(1).read_bytes() == WHOLE + tail
    assert "do not count" in got.notes[0]
    damage = place.fails(truncated_ok=False)
    assert damage.offset == len(WHOLE) and "aof-load-truncated is no" in str(damage)
    assert f"headrace check {place.incr(1)}" in str(damage)


def test_only_the_last_file_that_holds_anything_may_be_cut(place):
    place.write(i1=WHOLE + TAILS["record"], i2=b"", i3=b"")
    place.start()
    assert place.incr(1).read_bytes() == WHOLE
    place.write(i1=WHOLE + TAILS["record"], i2=b"", i3=WHOLE)
    damage = place.fails()
    assert damage.offset == len(WHOLE) and "not the last" in str(damage) and damage.file == str(place.incr(1))


def test_a_base_of_commands_may_be_cut_and_a_snapshot_may_not(place):
    place.write(b1=WHOLE + TAILS["record"])
    place.start()
    assert (place.log / "appendonly.aof.1.base.aof").read_bytes() == WHOLE
    data = snapshot(["SET", "a", "1"], ["SET", "b", "2"])
    for size in (6, len(data) // 2, len(data) - 1):
        place.write(b1=data[:size])
        damage = place.fails()
        assert (
            isinstance(damage, Damaged) and damage.file.endswith("base.rdb") and "another copy" in str(damage)
        )


# Damage.


def test_damage_names_the_file_the_offset_and_what_to_do(place):
    place.write(b1=snapshot(), i1=WHOLE + b"\0" * 8)
    text = str(place.fails())
    assert text.startswith(f"{place.incr(1)}, at byte {len(WHOLE)}: ")
    assert "8 zero bytes" in text and f"headrace check {place.incr(1)}" in text


def test_a_command_of_another_server_is_not_loaded(place):
    place.write(i1=WHOLE + record("ZADD", "z", 1, "m"))
    assert "'ZADD'" in str(place.fails()) and "streams and strings" in str(place.fails())


def test_a_command_that_fails_is_a_note(place):
    place.write(i1=WHOLE + record("XADD", "s", "0-0", "f", "v"))
    (note,) = place.start().notes
    assert "1 command failed" in note and f"the first at byte {len(WHOLE)}: ERR The ID" in note


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "\n",
        "file x seq 1 type b",
        "file a/b seq 1 type i\n",
        "file appendonly.aof.9.incr.aof seq 9 type i\n",
    ],
)
def test_a_bad_manifest_stops_the_start(place, manifest):
    place.write(i1=WHOLE)
    (place.log / MANIFEST).write_text(manifest)
    assert MANIFEST in str(place.fails())


def test_a_log_without_its_manifest_is_damage(place):
    place.write(i1=WHOLE)
    (place.log / MANIFEST).unlink()
    assert "manifest" in str(place.fails())
    (place.root / "appendonly.aof").write_bytes(WHOLE)
    assert "manifest" in str(place.fails())


def test_errors_of_the_disk_are_one_line(place):
    place.write(i1=WHOLE)
    place.incr(1).unlink()
    place.incr(1).mkdir()
    error = place.fails()
    assert not isinstance(error, Damaged) and str(place.incr(1)) in str(error) and "directory" in str(error)


# The layout before Redis 7.


def test_the_old_single_file_is_moved_in(place):
    old = place.root / "appendonly.aof"
    old.write_bytes(snapshot(["SET", "a", 1]) + record("SET", "b", 1))
    (place.root / "dump.rdb").write_bytes(b"not looked at")
    got = place.start()
    assert place.values() == {b"a": b"1", b"b": b"1"} and got.source_kind == "log"
    assert got.manifest.base.file == "appendonly.aof" and not old.exists() and "moved" in got.notes[0]
    assert (place.log / MANIFEST).read_text() == "file appendonly.aof seq 1 type b\n"
    again = place.start()
    assert again.notes == [] and again.key_count == 2


def test_a_move_that_a_crash_interrupted_is_finished(place):
    class Crash(Exception):
        pass

    class Dying(DiskDirectory):
        """Dies before its n-th change of a name."""

        def __init__(self, root, n):
            super().__init__(root)
            self.left = n

        def rename(self, old, new):
            self.left -= 1
            if self.left < 0:
                raise Crash
            super().rename(old, new)

    data = record("SET", "a", 1)
    for renames in (0, 1):
        (place.root / "appendonly.aof").write_bytes(data)
        with pytest.raises(Crash):
            place.start(files=Dying(str(place.root), renames))
        assert place.start().key_count == 1 and place.values() == {b"a": b"1"}
        for path in place.log.iterdir():
            path.unlink()


def test_a_move_to_another_file_system_is_left_to_the_operator(place):
    class TwoDisks(DiskDirectory):
        """The log's directory is a link to another disk."""

        def rename(self, old, new):
            if old == "appendonly.aof":
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), old)
            super().rename(old, new)

    old = place.root / "appendonly.aof"
    old.write_bytes(record("SET", "a", 1))
    with pytest.raises(HeadraceError, match=r"cannot be moved to .* move it there by hand"):
        place.start(files=TwoDisks(str(place.root)))
    shutil.move(old, place.log)
    place.start(files=TwoDisks(str(place.root)))
    assert place.values() == {b"a": b"1"}


def test_an_old_single_file_beside_a_log_is_kept_and_noted(place):
    place.write(i1=WHOLE)
    (place.root / "appendonly.aof").write_bytes(record("SET", "old", 1))
    got = place.start()
    assert place.values() == {b"a": b"1"} and (place.root / "appendonly.aof").exists()
    assert "appendonly.aof is not read" in got.notes[0]


def test_progress_names_the_file_and_goes_to_its_end(place):
    many = b"".join(record("XADD", "s", f"1-{n}", "f", "v" * 100) for n in range(5000))
    place.write(b1=snapshot(["SET", "a", 1]), i1=many, i2=WHOLE)
    place.start()
    of_records = [told for told in place.told if told[0].endswith("1.incr.aof")]
    assert len(of_records) > 1 and of_records[-1] == (of_records[0][0], len(many), len(many))
    assert [told[1] for told in of_records] == sorted(told[1] for told in of_records)
