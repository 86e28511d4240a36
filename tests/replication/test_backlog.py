"""The backlog against a bytes object that keeps everything."""

import random

import pytest

from headrace.replication.backlog import Backlog
from headrace.replication.history import NO_ID, History

BLOCK = 64 * 1024


def test_any_part_that_is_kept_is_read_back() -> None:
    rng = random.Random(7)
    whole = b""
    begin = 1000
    backlog = Backlog(begin)
    for _ in range(300):
        data = rng.randbytes(rng.choice([1, 37, 5000, BLOCK, 3 * BLOCK + 1]))
        backlog.append(memoryview(data))
        whole += data
        assert backlog.end == begin + len(whole)
        position = rng.randrange(backlog.start, backlog.end + 1)
        most = rng.choice([0, 1, 100, BLOCK, 1 << 30])
        at = position - begin
        assert backlog.read(position, most) == whole[at : at + most]
        backlog.trim(rng.choice([0, 10_000, 10 * BLOCK]), rng.randrange(begin, backlog.end + 1))
        assert backlog.start <= backlog.end


def test_trimming_keeps_the_configured_size_and_what_a_replica_needs() -> None:
    backlog = Backlog(0)
    backlog.append(memoryview(bytes(10 * BLOCK)))
    backlog.trim(3 * BLOCK, 1 << 62)
    assert backlog.start == 7 * BLOCK
    backlog.append(memoryview(bytes(10 * BLOCK)))
    backlog.trim(BLOCK, 8 * BLOCK + 5)
    assert backlog.start == 8 * BLOCK
    backlog.trim(0, 1 << 62)
    assert backlog.start == backlog.end == 20 * BLOCK
    assert backlog.read(backlog.end, 100) == b""
    backlog.append(memoryview(b"abc"))
    assert backlog.read(20 * BLOCK, 100) == b"abc"


@pytest.mark.parametrize("begin", [0, 12_345])
def test_only_positions_within_it_are_in_the_backlog(begin: int) -> None:
    backlog = Backlog(begin)
    backlog.append(memoryview(b"abc"))
    inside = [position for position in range(begin - 2, begin + 7) if backlog.contains(position)]
    assert inside == [begin, begin + 1, begin + 2, begin + 3]
    assert backlog.size() == 3


def test_a_promoted_server_knows_the_old_history_up_to_the_promotion() -> None:
    history = History()
    old = history.id
    assert len(old) == 40 and history.knows(old, 1 << 40)
    history.shift(100)
    assert history.id != old and history.second_id == old
    assert history.knows(old, 100) and not history.knows(old, 101)
    assert history.knows(history.id, 1000)
    assert not history.knows("?", 0) and not history.knows(NO_ID, 0)
    history.begin()
    assert not history.knows(old, 0)
    assert not history.knows(NO_ID, -1)
