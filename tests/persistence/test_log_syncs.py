"""Syncs of the log: after each commit or once a second, and never repeated on a file after a failure."""

import concurrent.futures
import errno

import pytest

from headrace.persistence.aof.log import Log
from headrace.persistence.aof.log_buffer import CHECKSUM_START
from headrace.persistence.aof.reader import checksum_line
from headrace.persistence.data_directory import File
from persistence.faults import FaultyFiles
from persistence.log_bench import INCR_1, NAMES, SECOND, SELECT, Bench, add, encoded, numbers_in


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_failed_sync_is_never_tried_again_on_that_file(files: FaultyFiles, policy: str) -> None:
    bench = Bench(files, policy=policy)
    bench.start()
    bench.commit(3)
    bench.log.tick(SECOND)
    files.fail("sync")
    assert bench.commit() == (policy == "everysec")
    bench.log.tick(2 * SECOND)
    assert bench.log.needs_rewrite and "must be rewritten" in bench.log.failure
    files.log.clear()
    for _ in range(3):
        assert not bench.commit()
        bench.log.tick(bench.now_ms + 5 * SECOND)
    assert files.log == []
    assert bench.log.synced < bench.log.written
    assert bench.rewritten()
    assert not any(INCR_1 in done and not done.startswith("remove") for done in files.log)
    assert bench.log.commit([], 0) and bench.log.failure == ""
    assert numbers_in(files) == bench.given
    last = len(CHECKSUM_START + SELECT + encoded(0) + checksum_line(0))
    assert bench.log.synced == bench.log.written - (last if policy == "everysec" else 0)


def test_a_sync_that_fails_during_a_rewrite_makes_the_rewrite_fail(bench: Bench) -> None:
    bench.commit()
    rewrite = bench.log.begin_rewrite(rdb=False)
    (file := bench.files.create(rewrite.temporary_path)).write(encoded(*bench.given))
    file.close()
    bench.files.fail("sync")
    assert not bench.commit()
    assert not bench.log.finish_rewrite(rewrite, True)
    assert "must be rewritten" in rewrite.failure
    assert not bench.files.exists(rewrite.temporary_path)
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


def test_a_sync_of_everysec_covers_what_was_written_when_it_began(files: FaultyFiles) -> None:
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
    assert log.delayed_commits == 1 and log.synced > first
    log.tick(3 * SECOND)  # a clock that was set back
    assert len(started) == 3
    assert log.close(clean=True) and log.synced == log.written


class Unlucky(Later):
    """A sync that hears of a failure, so that no other does."""

    def result(self) -> object:
        raise OSError(errno.EIO, "Input/output error")


def test_a_failed_sync_in_the_other_thread_fails_the_next_commit(files: FaultyFiles) -> None:
    """The kernel tells of a failed write once: to the sync in the other thread, and not to the next one."""
    log = Log(files, NAMES, policy="everysec", sync_later=Unlucky)
    log.start(None)
    log.create(lambda file: None)
    log.commit(add(0), 0)
    log.tick(5 * SECOND)
    log.set_policy("always")
    assert log.syncing and not log.commit(add(1), 5 * SECOND)
    assert log.needs_rewrite and log.synced == 0


def test_everysec_works_with_a_real_thread(files: FaultyFiles) -> None:
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
