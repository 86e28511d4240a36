"""The log: what commit() promised is there after any failure and any kill, each record once and in order."""

import concurrent.futures
import errno
import pathlib
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from faults import FaultyFiles, Killed

from headrace.errors import HeadraceError
from headrace.persistence.aof.log import Log, Rewrite
from headrace.persistence.aof.manifest import Manifest, write_all
from headrace.persistence.aof.names import Names
from headrace.persistence.files import DiskFiles, File

NAMES = Names()
SELECT = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"
INCR_1 = NAMES.path("appendonly.aof.1.incr.aof")
SECOND = 1000
ADD = re.compile(rb"\*2\r\n\$3\r\nADD\r\n\$\d+\r\n(\d+)\r\n")
WORD = re.compile(rb"\$(\d+)\r\n")
Words = list[bytes]


def add(*numbers: int) -> list[tuple[int, Words]]:
    return [(0, [b"ADD", b"%d" % n]) for n in numbers]


def encoded(*numbers: int) -> bytes:
    return b"".join(b"*2\r\n$3\r\nADD\r\n$%d\r\n%d\r\n" % (len(str(n)), n) for n in numbers)


def numbers_in(files: FaultyFiles) -> list[int]:
    """What a start would read: all numbers, by a reader that has nothing in common with the writer."""
    manifest = Manifest.load(files, NAMES)
    if manifest is None:
        return []
    found: list[int] = []
    for line in manifest.read_lines():
        data = pathlib.Path(files.files.path(NAMES.path(line.file))).read_bytes()
        data = data.replace(SELECT, b"")
        at = 0
        while record := ADD.match(data, at):
            found.append(int(record[1]))
            at = record.end()
        last = line == manifest.read_lines()[-1]
        assert at == len(data) or last, f"{line.file} goes on with {data[at : at + 20]!r}"
    return found


class Bench:
    """A log, and a memory that knows what was given and what was acknowledged."""

    def __init__(self, files: FaultyFiles, given: list[int] | None = None, policy: str = "always") -> None:
        self.files = files
        self.given = given or []
        self.acknowledged = len(self.given)
        self.log = Log(files, NAMES, policy=policy)
        self.now_ms = 0

    def start(self) -> None:
        self.log.start(Manifest.load(self.files, NAMES))
        if self.log.needs_rewrite:
            self.log.create(self.write_base, rdb=False)

    def write_base(self, file: File) -> None:
        write_all(file, encoded(*self.given))

    def commit(self, count: int = 1) -> bool:
        numbers = list(range(len(self.given), len(self.given) + count))
        self.given += numbers
        done = self.log.commit(add(*numbers), self.now_ms)
        if done:
            self.acknowledged = len(self.given)
        return done

    def rewritten(self) -> bool:
        """A rewrite with a commit in its midst."""
        rewrite = self.log.begin_rewrite(rdb=False)
        snapshot = list(self.given)
        self.commit()
        try:
            file = self.files.create(rewrite.temporary)
            write_all(file, encoded(*snapshot))
            file.sync()
            file.close()
        except OSError:
            return self.log.finish_rewrite(rewrite, False)
        return self.log.finish_rewrite(rewrite, True)

    def heal(self) -> None:
        """Do what a server does until the log is well again."""
        for _ in range(4):
            if self.log.needs_rewrite:
                self.rewritten()
            self.now_ms += SECOND
            self.log.tick(self.now_ms)
            if self.log.commit([], self.now_ms):
                self.acknowledged = len(self.given)
                return
        raise AssertionError(self.log.trouble)


@pytest.fixture
def files(tmp_path: pathlib.Path) -> FaultyFiles:
    return FaultyFiles(DiskFiles(str(tmp_path)))


@pytest.fixture
def bench(files: FaultyFiles) -> Bench:
    bench = Bench(files)
    bench.start()
    files.log.clear()
    return bench


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], None]]:
    """A limit on the size of files: writes past it come out short, then fail, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size if size else before[0], before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def content(files: FaultyFiles, name: str) -> bytes:
    return pathlib.Path(files.files.path(name)).read_bytes()


# what is on disk


def test_a_first_log_has_a_base_an_incr_and_a_manifest(bench: Bench) -> None:
    assert bench.files.list("appendonlydir") == [
        "appendonly.aof.1.base.aof",
        "appendonly.aof.1.incr.aof",
        "appendonly.aof.manifest",
    ]
    assert content(bench.files, NAMES.manifest) == (
        b"file appendonly.aof.1.base.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"
    )


def test_one_commit_is_one_write_and_under_always_one_sync(bench: Bench) -> None:
    assert bench.commit(100)
    assert bench.files.log == [f"write {INCR_1}", f"sync {INCR_1}"]
    assert bench.log.commit([], 0)
    assert len(bench.files.log) == 2  # nothing new: nothing done
    assert numbers_in(bench.files) == list(range(100))
    assert bench.log.written == bench.log.synced == len(content(bench.files, INCR_1)) == bench.log.size


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_other_policies_do_not_sync_in_a_commit(files: FaultyFiles, policy: str) -> None:
    bench = Bench(files, policy=policy)
    bench.start()
    files.log.clear()
    assert bench.commit()
    assert files.log == [f"write {INCR_1}"]
    assert bench.log.synced == 0 < bench.log.written
    bench.log.set_policy("always")  # what was written before counts, too
    assert bench.log.commit([], 0)
    assert bench.log.synced == bench.log.written
    with pytest.raises(ValueError, match="sometimes"):
        bench.log.set_policy("sometimes")


def test_a_restart_goes_on_in_the_same_file_with_a_select(bench: Bench) -> None:
    bench.commit()
    bench.log.close(clean=True)
    bench.files.log.clear()
    again = Bench(bench.files, bench.given)
    again.start()
    assert bench.files.log == [  # a killed process leaves renames and records that nobody has synced
        "make_directory appendonlydir",
        "sync_directory",
        "sync_directory appendonlydir",
        f"append {INCR_1}",
        f"sync {INCR_1}",
    ]
    again.commit()
    assert content(bench.files, INCR_1) == SELECT + encoded(0) + SELECT + encoded(1)


def test_the_time_goes_before_a_commit_when_asked(files: FaultyFiles) -> None:
    log = Log(files, NAMES, policy="no", timestamps=True)
    log.start(None)
    log.create(lambda file: None)
    for now_ms in (1000, 1999, 2000):
        log.commit(add(now_ms), now_ms)
    log.commit([], 5000)
    data = content(files, INCR_1).replace(SELECT, b"")
    assert data == b"#TS:1\r\n" + encoded(1000, 1999) + b"#TS:2\r\n" + encoded(2000)


def test_a_single_old_file_as_base_gets_an_incr(files: FaultyFiles) -> None:
    files.make_directory("appendonlydir")
    with open(files.files.path(NAMES.path("appendonly.aof")), "wb") as old:
        old.write(encoded(0, 1))
    (file := files.create(NAMES.manifest)).write(b"file appendonly.aof seq 1 type b\n")
    file.close()
    bench = Bench(files, [0, 1])
    bench.start()
    bench.commit()
    assert numbers_in(files) == [0, 1, 2]
    assert (bench.log.base_size, bench.log.size) == (
        len(encoded(0, 1)),
        len(encoded(0, 1)) + bench.log.written,
    )
    assert bench.rewritten()
    assert not files.exists(NAMES.path("appendonly.aof"))
    assert numbers_in(files) == [0, 1, 2, 3]


# a disk that is full


def test_a_full_disk_is_waited_for_and_nothing_is_lost(
    bench: Bench, small_disk: Callable[[int], None]
) -> None:
    bench.commit(3)
    whole = content(bench.files, INCR_1)
    small_disk(len(whole) + 40)
    for _ in range(3):
        assert not bench.commit(10)
        assert "could not be written" in bench.log.trouble and not bench.log.needs_rewrite
        assert content(bench.files, INCR_1) == whole  # what fitted was cut off again
    with pytest.raises(HeadraceError, match="cannot be rewritten now"):
        bench.log.begin_rewrite()
    assert bench.log.waiting > 0 and bench.log.synced < bench.log.written
    assert not bench.log.close(clean=False) and numbers_in(bench.files) == [0, 1, 2]
    small_disk(0)  # before pytest goes on writing, perhaps into a file


def test_a_disk_with_room_again_takes_what_waited(bench: Bench, small_disk: Callable[[int], None]) -> None:
    bench.commit(3)
    small_disk(bench.log.size + 40)
    assert not bench.commit(10)
    small_disk(0)
    bench.log.tick(0)
    assert bench.log.trouble == "" and bench.log.waiting == 0
    assert bench.log.commit([], 0) and numbers_in(bench.files) == list(range(13))
    assert bench.commit() and bench.log.synced == bench.log.written == len(content(bench.files, INCR_1))


def test_a_short_write_that_goes_on_is_no_trouble(bench: Bench) -> None:
    bench.files.short = 7
    assert bench.commit(5)
    assert numbers_in(bench.files) == list(range(5))


def test_what_cannot_be_cut_off_is_cut_off_first_thing_later(bench: Bench) -> None:
    bench.commit()
    bench.files.short = 9
    bench.files.fail("write", after=1)
    bench.files.fail("truncate")
    bench.files.fail("truncate", after=0)
    assert not bench.commit()
    torn = content(bench.files, INCR_1)
    assert torn[-9:] == encoded(1)[:9]
    assert not bench.commit()  # the second fault: still cannot be cut off, so nothing is written behind it
    assert content(bench.files, INCR_1) == torn
    assert bench.commit()
    assert numbers_in(bench.files) == [0, 1, 2, 3]


def test_a_device_that_is_always_full(files: FaultyFiles) -> None:
    """/dev/full refuses writes and truncates alike."""
    bench = Bench(files)
    bench.start()
    bench.log.close(clean=True)
    path = pathlib.Path(files.files.path(INCR_1))
    path.unlink()
    path.symlink_to("/dev/full")
    log = Log(files, NAMES, policy="no")
    log.start(Manifest.load(files, NAMES))
    assert not log.commit(add(0), 0) and "No space left" in log.trouble
    assert not log.commit(add(1), 0) and "Invalid argument" in log.trouble  # cutting comes first now
    assert log.waiting == log.written > 0


# a sync that fails


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_failed_sync_is_never_tried_again_on_that_file(files: FaultyFiles, policy: str) -> None:
    bench = Bench(files, policy=policy)
    bench.start()
    bench.commit(3)
    bench.log.tick(SECOND)
    files.fail("sync")
    assert bench.commit() == (policy == "everysec")
    bench.log.tick(2 * SECOND)
    assert bench.log.needs_rewrite and "must be rewritten" in bench.log.trouble
    files.log.clear()
    for _ in range(3):
        assert not bench.commit()
        bench.log.tick(bench.now_ms + 5 * SECOND)
    assert files.log == []
    assert bench.log.synced < bench.log.written
    assert bench.rewritten()
    assert not any(INCR_1 in done and not done.startswith("remove") for done in files.log)
    assert bench.log.commit([], 0) and bench.log.trouble == ""
    assert numbers_in(files) == bench.given
    assert bench.log.synced == bench.log.written - (len(SELECT + encoded(0)) if policy == "everysec" else 0)


def test_a_sync_that_fails_during_a_rewrite_spoils_the_rewrite(bench: Bench) -> None:
    bench.commit()
    rewrite = bench.log.begin_rewrite(rdb=False)
    (file := bench.files.create(rewrite.temporary)).write(encoded(*bench.given))
    file.close()
    bench.files.fail("sync")
    assert not bench.commit()
    assert not bench.log.finish_rewrite(rewrite, True)
    assert "must be rewritten" in rewrite.trouble
    assert not bench.files.exists(rewrite.temporary)
    assert not bench.commit()
    bench.heal()
    assert numbers_in(bench.files) == bench.given


# once a second


class Later:
    """A sync in another thread whose end the test decides."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.over = False

    def done(self) -> bool:
        return self.over

    def result(self) -> object:
        self.over = True
        self.file.sync()
        return None


def test_everysec_syncs_once_a_second_and_counts_what_was_there_when_it_began(files: FaultyFiles) -> None:
    started: list[Later] = []

    def sync_later(file: File) -> Later:
        started.append(Later(file))
        return started[-1]

    log = Log(files, NAMES, policy="everysec", sync_later=sync_later)
    log.start(None)
    log.create(lambda file: None)
    log.tick(10 * SECOND)
    assert started == []  # nothing to sync
    log.commit(add(0), 10 * SECOND)
    first = log.written
    log.tick(10 * SECOND)
    log.commit(add(1), 10 * SECOND)
    log.tick(10 * SECOND + 999)
    log.tick(12 * SECOND)
    assert len(started) == 1 and log.syncing and log.synced == 0  # one at a time
    started[0].over = True
    log.tick(12 * SECOND)
    assert log.synced == first < log.written
    assert len(started) == 2
    assert log.commit(add(2), 14 * SECOND) and not started[1].over
    assert log.commit(add(3), 14 * SECOND + 1) and started[1].over  # it takes too long: waited for
    assert log.delayed == 1 and log.synced > first
    log.tick(3 * SECOND)  # a clock that was set back
    assert len(started) == 3
    assert log.close(clean=True) and log.synced == log.written


class Unlucky(Later):
    """A sync that hears of a failure, so that no other does."""

    def result(self) -> object:
        raise OSError(errno.EIO, "Input/output error")


def test_a_failure_in_the_other_thread_is_heard_before_a_commit_is_promised(files: FaultyFiles) -> None:
    """The kernel tells of a failed write once: to the sync in the other thread, and not to the next one."""
    log = Log(files, NAMES, policy="everysec", sync_later=Unlucky)
    log.start(None)
    log.create(lambda file: None)
    log.commit(add(0), 0)
    log.tick(5 * SECOND)
    log.set_policy("always")
    assert log.syncing and not log.commit(add(1), 5 * SECOND)
    assert log.needs_rewrite and log.synced == 0


def test_everysec_with_a_real_thread(files: FaultyFiles) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        log = Log(files, NAMES, policy="everysec", sync_later=lambda file: pool.submit(file.sync))
        log.start(None)
        log.create(lambda file: None)
        for second in range(5):
            log.commit(add(second), second * SECOND)
            log.tick(second * SECOND)
        pool.submit(int).result()  # what was asked for before is done
        log.tick(9 * SECOND)
        assert 0 < log.synced <= log.written
        files.fail("sync")
        log.commit(add(5), 20 * SECOND)
        log.tick(20 * SECOND)
        pool.submit(int).result()
        log.tick(20 * SECOND)
        assert log.needs_rewrite and not log.commit([], 20 * SECOND)


# rewriting


def test_a_rewrite_takes_the_place_of_what_was_before(bench: Bench) -> None:
    bench.commit(100)
    assert bench.rewritten()
    bench.commit()
    assert bench.files.list("appendonlydir") == [
        "appendonly.aof.2.base.aof",
        "appendonly.aof.2.incr.aof",
        "appendonly.aof.manifest",
    ]
    assert numbers_in(bench.files) == list(range(102))
    assert bench.log.size == sum(
        bench.files.size(NAMES.path(f)) for f in bench.files.list("appendonlydir")[:2]
    )
    assert bench.log.base_size < bench.log.size
    assert content(bench.files, NAMES.path("appendonly.aof.2.incr.aof")).startswith(SELECT)
    with pytest.raises(HeadraceError, match="already"):
        bench.log.begin_rewrite() and bench.log.begin_rewrite()


def test_the_steps_of_a_rewrite_come_in_the_order_that_survives_a_power_cut(bench: Bench) -> None:
    bench.log.set_policy("no")
    bench.files.log.clear()
    bench.commit()
    assert bench.rewritten()
    told = [done.replace("appendonlydir/", "").replace("appendonly.aof", "A") for done in bench.files.log]
    assert told == [
        "write A.1.incr.aof",
        "sync A.1.incr.aof",
        "create A.2.incr.aof",
        "sync_directory appendonlydir",
        "create temp-A.manifest",
        "write temp-A.manifest",
        "sync temp-A.manifest",
        "rename A.manifest",
        "sync_directory appendonlydir",
        "write A.2.incr.aof",
        "create temp-A.2.base.aof",
        "write temp-A.2.base.aof",
        "sync temp-A.2.base.aof",
        "append temp-A.2.base.aof",
        "sync temp-A.2.base.aof",
        "rename A.2.base.aof",
        "sync_directory appendonlydir",
        "create temp-A.manifest",
        "write temp-A.manifest",
        "sync temp-A.manifest",
        "rename A.manifest",
        "sync_directory appendonlydir",
        "remove A.1.base.aof",
        "remove A.1.incr.aof",
        "create temp-A.manifest",
        "write temp-A.manifest",
        "sync temp-A.manifest",
        "rename A.manifest",
        "sync_directory appendonlydir",
    ]


def test_a_failed_rewrite_leaves_the_log_as_it_was(bench: Bench) -> None:
    for expected in (2, 3):
        bench.commit()
        size = bench.log.size
        rewrite = bench.log.begin_rewrite()
        assert bench.log.size == size
        assert (rewrite.rdb, rewrite.base.file) == (True, f"appendonly.aof.{expected}.base.rdb")
        bench.commit()
        (file := bench.files.create(rewrite.temporary)).write(b"half")
        file.close()
        assert not bench.log.finish_rewrite(rewrite, False)
        assert not bench.files.exists(rewrite.temporary)
    bench.commit()
    assert numbers_in(bench.files) == bench.given
    assert bench.rewritten()
    assert numbers_in(bench.files) == bench.given
    assert len(bench.files.list("appendonlydir")) == 3


def test_a_base_that_was_said_to_be_whole_and_is_missing(bench: Bench) -> None:
    bench.commit()
    rewrite = bench.log.begin_rewrite()
    assert not bench.log.finish_rewrite(rewrite, True)
    assert "No such file" in rewrite.trouble
    assert bench.commit() and numbers_in(bench.files) == [0, 1]


def test_history_is_kept_when_asked(files: FaultyFiles) -> None:
    bench = Bench(files)
    bench.log.disable_gc = True
    bench.start()
    bench.commit()
    assert bench.rewritten() and bench.rewritten()
    manifest = Manifest.load(files, NAMES)
    assert manifest is not None
    assert [line.file.removeprefix("appendonly.aof.") for line in manifest.lines()] == [
        "1.base.aof",
        "1.incr.aof",
        "2.base.aof",
        "2.incr.aof",
        "3.base.aof",
        "3.incr.aof",
    ]
    assert all(files.exists(NAMES.path(line.file)) for line in manifest.lines())
    again = Bench(files, bench.given)
    again.start()  # this one does not keep it
    assert len(files.list("appendonlydir")) == 3 and numbers_in(files) == bench.given


def test_an_incr_that_no_manifest_names_is_never_emptied(bench: Bench) -> None:
    bench.commit()
    stranger = NAMES.path("appendonly.aof.2.incr.aof")
    (file := bench.files.create(stranger)).write(b"precious")
    file.close()
    assert bench.rewritten()
    assert content(bench.files, stranger) == b"precious"
    assert numbers_in(bench.files) == bench.given
    assert bench.files.exists(NAMES.path("appendonly.aof.3.incr.aof"))


def test_an_unsettled_manifest_holds_up_commits_until_it_is_stored(bench: Bench) -> None:
    bench.commit()
    bench.files.fail("sync_directory", after=1)  # the one behind the manifest's rename
    rewrite: Rewrite = bench.log.begin_rewrite()
    incr = NAMES.path(rewrite.incr.file)
    bench.files.fail("sync_directory")
    assert not bench.commit() and "manifest" in bench.log.trouble
    assert content(bench.files, incr) == b""
    assert bench.commit()
    assert numbers_in(bench.files) == [0, 1, 2]


def test_nothing_is_removed_while_a_manifest_is_unsettled(bench: Bench) -> None:
    bench.commit()
    rewrite = bench.log.begin_rewrite(rdb=False)
    (file := bench.files.create(rewrite.temporary)).write(encoded(*bench.given))
    file.close()
    bench.files.fail("sync_directory", after=1)
    bench.files.fail("create", after=1)  # and it cannot be stored anew yet
    before = set(bench.files.list("appendonlydir"))
    assert bench.log.finish_rewrite(rewrite, True)
    assert bench.log.trouble and not bench.files.faults
    assert before - set(bench.files.list("appendonlydir")) == {"temp-appendonly.aof.2.base.aof"}
    assert bench.commit()
    assert len(bench.files.list("appendonlydir")) == 3
    assert numbers_in(bench.files) == bench.given


def test_a_base_that_cannot_be_taken_up_is_removed(bench: Bench) -> None:
    bench.commit()
    rewrite = bench.log.begin_rewrite(rdb=False)
    (file := bench.files.create(rewrite.temporary)).write(encoded(*bench.given))
    file.close()
    before = set(bench.files.list("appendonlydir"))
    bench.files.fail("create")  # of the new manifest
    assert not bench.log.finish_rewrite(rewrite, True)
    assert set(bench.files.list("appendonlydir")) == before - {"temp-appendonly.aof.2.base.aof"}
    assert bench.commit() and numbers_in(bench.files) == bench.given


# every step, failing and killed


def history(bench: Bench) -> None:
    """A short life with everything in it. A server goes on after what fails."""
    try:
        bench.start()
    except (OSError, HeadraceError):
        return
    for step in range(6):
        bench.commit(2)
        bench.now_ms += SECOND
        bench.log.tick(bench.now_ms)
        if step in (1, 3) or bench.log.needs_rewrite:
            try:
                bench.rewritten()
            except HeadraceError:
                bench.commit()
    bench.log.close(clean=True)


OPERATIONS = ["append", "create", "remove", "rename", "sync", "sync_directory", "truncate", "write"]


@pytest.mark.parametrize("policy", ["always", "everysec"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_operation_may_fail(tmp_path: pathlib.Path, operation: str, policy: str) -> None:
    failed = 0
    for nth in range(60):
        root = tmp_path / str(nth)
        root.mkdir()
        files = FaultyFiles(DiskFiles(str(root)))
        bench = Bench(files, policy=policy)
        if operation == "truncate":
            files.fail("write", after=5 + nth)
        files.fail(operation, after=nth if operation != "truncate" else 0)
        history(bench)
        if files.faults:
            break  # the history has fewer operations of that kind
        failed += 1
        found = numbers_in(files)
        assert found == bench.given[: len(found)]
        assert len(found) >= bench.acknowledged
        again = Bench(files, found)
        again.start()
        again.commit()
        again.heal()
        assert again.rewritten()
        assert numbers_in(files) == again.given
        assert len(files.list("appendonlydir")) == 3, files.list("appendonlydir")
    assert failed >= 1


@pytest.mark.parametrize("trouble", [None, ("sync", 6), ("write", 6), ("sync_directory", 6)])
def test_a_kill_between_any_two_operations(tmp_path: pathlib.Path, trouble: tuple[str, int] | None) -> None:
    killed = 0
    while True:
        root = tmp_path / str(killed)
        root.mkdir()
        files = FaultyFiles(DiskFiles(str(root)))
        if trouble:
            files.fail(*trouble)
        files.stop_after = killed
        bench = Bench(files)
        try:
            history(bench)
        except Killed:
            killed += 1
        else:
            break
        files = FaultyFiles(DiskFiles(str(root)))
        found = numbers_in(files)
        assert found == bench.given[: len(found)]
        assert len(found) >= bench.acknowledged
        again = Bench(files, found)
        again.start()
        assert again.commit(2) and again.rewritten() and again.commit()
        assert numbers_in(files) == again.given
        assert len(files.list("appendonlydir")) == 3, files.list("appendonlydir")
    assert killed > 60


# another reader


def test_a_real_redis_reads_it(tmp_path: pathlib.Path) -> None:
    files = DiskFiles(str(tmp_path))
    log = Log(files, NAMES, policy="always", timestamps=True)
    log.start(None)
    log.create(lambda file: write_all(file, b"*3\r\n$3\r\nSET\r\n$4\r\nbase\r\n$3\r\nyes\r\n"), rdb=False)
    log.commit(
        [(0, [b"XADD", b"s", b"1-1", b"f", b"v" * 300]), (5, [b"SET", b"five", b"\x00\r\n\xff"])], 1_000
    )
    log.commit(
        [
            (0, [b"MULTI"]),
            (0, [b"XADD", b"s", b"2-0", b"f", b""]),
            (0, [b"XGROUP", b"CREATE", b"s", b"g", b"0"]),
            (0, [b"EXEC"]),
        ],
        2_000,
    )
    rewrite = log.begin_rewrite(rdb=False)  # two incr files, as while a rewrite runs
    log.commit([(0, [b"XADD", b"s", b"3-0", b"f", b"v"])], 3_000)
    assert log.finish_rewrite(rewrite, False) is False
    assert log.close(clean=True)
    socket = str(tmp_path / "socket")
    options = [
        "--port",
        "0",
        "--unixsocket",
        socket,
        "--dir",
        str(tmp_path),
        "--appendonly",
        "yes",
        "--save",
        "",
    ]
    server = subprocess.Popen(["redis-server", *options], stdout=subprocess.PIPE)
    try:
        with (
            redis.Redis(unix_socket_path=socket) as client,
            redis.Redis(unix_socket_path=socket, db=5) as five,
        ):
            for _ in range(500):
                try:
                    client.ping()
                    break
                except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
                    time.sleep(0.01)
            assert client.get("base") == b"yes"
            assert client.xrange("s") == [
                (b"1-1", {b"f": b"v" * 300}),
                (b"2-0", {b"f": b""}),
                (b"3-0", {b"f": b"v"}),
            ]
            assert [group["name"] for group in client.xinfo_groups("s")] == [b"g"]
            assert five.get("five") == b"\x00\r\n\xff"
            client.xadd("s", {"by": "redis"}, id="4-0")
    finally:
        server.terminate()
        said = server.communicate()[0].decode()
    assert "DB loaded from incr file appendonly.aof.2.incr.aof" in said, said
    again = Log(files, NAMES)
    again.start(Manifest.load(files, NAMES))
    assert again.commit([(0, [b"XADD", b"s", b"5-0", b"f", b"v"])], 4_000)
    assert b"redis" in pathlib.Path(files.path(NAMES.path("appendonly.aof.2.incr.aof"))).read_bytes()
