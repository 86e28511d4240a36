"""Commits to the log: the bytes on disk, also if the disk is full, an operation fails or after a kill."""

import pathlib
import resource
import signal
from collections.abc import Callable, Iterator

import pytest

from headrace.errors import HeadraceError
from headrace.persistence.aof.log import Log
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.data_directory import DiskDirectory
from persistence.faults import FaultyFiles, Killed
from persistence.log_bench import (
    INCR_1,
    NAMES,
    SECOND,
    SELECT,
    Bench,
    add,
    content,
    encoded,
    numbers_in,
    raw_content,
)


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
    assert bench.log.written == bench.log.synced == len(raw_content(bench.files, INCR_1)) == bench.log.size


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


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], None]]:
    """A limit on the size of files: writes past it come out short, then fail, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size if size else before[0], before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def test_records_stay_in_memory_while_the_disk_is_full(
    bench: Bench, small_disk: Callable[[int], None]
) -> None:
    bench.commit(3)
    whole = content(bench.files, INCR_1)
    small_disk(len(whole) + 40)
    for _ in range(3):
        assert not bench.commit(10)
        assert "could not be written" in bench.log.failure and not bench.log.needs_rewrite
        assert content(bench.files, INCR_1) == whole  # what fitted was cut off again
    with pytest.raises(HeadraceError, match="cannot be rewritten now"):
        bench.log.begin_rewrite()
    assert bench.log.unwritten_bytes > 0 and bench.log.synced < bench.log.written
    assert not bench.log.close(clean=False) and numbers_in(bench.files) == [0, 1, 2]
    small_disk(0)  # before pytest goes on writing, perhaps into a file


def test_records_are_written_when_the_disk_has_space_again(
    bench: Bench, small_disk: Callable[[int], None]
) -> None:
    bench.commit(3)
    small_disk(bench.log.size + 40)
    assert not bench.commit(10)
    small_disk(0)
    bench.log.tick(0)
    assert bench.log.failure == "" and bench.log.unwritten_bytes == 0
    assert bench.log.commit([], 0) and numbers_in(bench.files) == list(range(13))
    assert bench.commit() and bench.log.synced == bench.log.written == len(raw_content(bench.files, INCR_1))


def test_a_short_write_is_continued(bench: Bench) -> None:
    bench.files.short = 7
    assert bench.commit(5)
    assert numbers_in(bench.files) == list(range(5))


def test_a_failed_truncation_is_repeated_before_the_next_write(bench: Bench) -> None:
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


def test_nothing_is_lost_on_a_device_that_is_always_full(files: FaultyFiles) -> None:
    """/dev/full refuses writes and truncates alike."""
    bench = Bench(files)
    bench.start()
    bench.log.close(clean=True)
    path = pathlib.Path(files.files.path(INCR_1))
    path.unlink()
    path.symlink_to("/dev/full")
    log = Log(files, NAMES, policy="no")
    log.start(Manifest.load(files, NAMES))
    assert not log.commit(add(0), 0) and "No space left" in log.failure
    assert not log.commit(add(1), 0) and "Invalid argument" in log.failure  # cutting comes first now
    assert log.unwritten_bytes == log.written > 0


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
def test_nothing_is_lost_whichever_operation_fails(
    tmp_path: pathlib.Path, operation: str, policy: str
) -> None:
    failed = 0
    for nth in range(60):
        root = tmp_path / str(nth)
        root.mkdir()
        files = FaultyFiles(DiskDirectory(str(root)))
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


@pytest.mark.parametrize("failure", [None, ("sync", 6), ("write", 6), ("sync_directory", 6)])
def test_nothing_is_lost_by_a_kill_between_any_two_operations(
    tmp_path: pathlib.Path, failure: tuple[str, int] | None
) -> None:
    killed = 0
    while True:
        root = tmp_path / str(killed)
        root.mkdir()
        files = FaultyFiles(DiskDirectory(str(root)))
        if failure:
            files.fail(*failure)
        files.stop_after = killed
        bench = Bench(files)
        try:
            history(bench)
        except Killed:
            killed += 1
        else:
            break
        files = FaultyFiles(DiskDirectory(str(root)))
        found = numbers_in(files)
        assert found == bench.given[: len(found)]
        assert len(found) >= bench.acknowledged
        again = Bench(files, found)
        again.start()
        assert again.commit(2) and again.rewritten() and again.commit()
        assert numbers_in(files) == again.given
        assert len(files.list("appendonlydir")) == 3, files.list("appendonlydir")
    assert killed > 60
