"""Bugs that the simulation has found, as minimal tests."""

import pytest

from headrace.persistence.aof.log import Log
from simulation.disk import SimulatedFiles
from simulation.world import NAMES


def new_log(policy):
    files = SimulatedFiles()
    log = Log(files, NAMES, policy=policy)
    log.start(None)
    log.create(lambda file: None, rdb=False)
    assert log.commit([(0, [b"SET", b"a", b"1"])], 1000) == (policy != "always" or log.synced == log.written)
    return files, log


def test_everysec_that_becomes_always_still_syncs_what_it_owes():
    """It did so with the next commit only, and there need not be one."""
    files, log = new_log("everysec")
    log.set_policy("always")
    log.tick(2100)
    assert log.synced == log.written
    assert files.journal[-1].what == "sync"


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_nothing_is_synced_while_the_old_manifest_may_come_back(policy):
    """A failed sync, then a rewrite whose manifest may not stand: the base does not count yet."""
    files, log = new_log("no")
    log.set_policy(policy)
    before = log.synced
    files.faults.failing["sync"] = 1
    log.commit([(0, [b"SET", b"a", b"2"])], 1001)
    log._sync()
    assert log.needs_rewrite
    files.faults.failing = {"sync_directory": 0.0}
    rewrite = log.begin_rewrite(rdb=False)
    files.create(rewrite.temporary_path).sync()
    rename = files.rename
    files.rename = lambda old, new: (
        rename(old, new),
        files.faults.failing.update(sync_directory=float("manifest" in new)),
    )
    log.finish_rewrite(rewrite, True)
    assert log.failure
    for now in (2500, 4000, 9000):
        log.tick(now)
        assert not log.commit([], now)
    assert log.synced == before
    files.faults.failing.clear()
    files.rename = rename
    log.tick(10_000)
    assert log.commit([], 10_001)
    assert log.synced == log.written
