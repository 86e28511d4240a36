"""The library's database after a power cut: what was returned is there, and batches are complete."""

import contextlib
import random
from collections.abc import Iterator

import pytest

import headrace
from headrace.api.database import build_database
from headrace.api.local.clock import ManualClock
from headrace.api.local.log_rewriter import LogRewriter
from headrace.api.local.storage import Storage
from headrace.keyspace.settings import Settings
from simulation.disk import Platter, SimulatedFiles

Returned = list[tuple[int, list[bytes]]]  # operations of the disk when a call returned; the IDs it gave


def opened(files: SimulatedFiles, policy: str = "always") -> headrace.Database:
    return build_database(Storage(files, policy, rewrite_min_bytes=3000), ManualClock(), Settings())


def live(files: SimulatedFiles, chance: random.Random) -> Returned:
    """Add entries one way or the other."""
    db = opened(files)
    returned = []
    for n in range(40):
        if chance.random() < 0.5:
            ids = [db.backend.add(b"s", b"*", {"n": n, "fill": "x" * 50})]
        else:
            ids = db.backend.add_many(b"s", [{"n": n, "i": i} for i in range(chance.randint(2, 5))])
        returned.append((len(files.journal), ids))
        if chance.random() < 0.05:
            db.compact()
    db.close()
    return returned


@pytest.mark.parametrize("seed", range(6))
def test_what_was_returned_survives_and_batches_are_whole(seed: int) -> None:
    chance = random.Random(seed)
    files = SimulatedFiles(chance=chance)
    returned = live(files, chance)
    assert sum(op.what == "rename" for op in files.journal) > 3  # it was rewritten meanwhile
    platter = Platter(files.image)
    for at, op in enumerate(files.journal, 1):
        platter.apply(op)
        if chance.random() < 0.6:
            continue
        image = platter.image(chance, chance.choice(("kept", "forgotten", "torn", "mixed")))
        db = opened(SimulatedFiles(image))
        there = {entry[0] for entry in db.execute("XRANGE", "s", "-", "+")}
        for end, ids in returned:
            kept = [id in there for id in ids]
            assert all(kept) if end <= at else all(kept) or not any(kept), (at, str(op))
        db.close()


def live_through_rewrites(files: SimulatedFiles, policy: str, monkeypatch: pytest.MonkeyPatch) -> Returned:
    """Rewrite the log, and add an entry before and after each slow step in which the log is unlocked."""
    returned: Returned = []
    db = opened(files, policy)

    def add() -> None:
        returned.append((0, [db.backend.add(b"s", b"*", {"fill": "x" * 50})]))
        returned[-1] = (len(files.journal), returned[-1][1])

    unlocked = LogRewriter._unlocked

    @contextlib.contextmanager
    def unlocked_between_adds(self: LogRewriter) -> Iterator[None]:
        with unlocked(self):
            add()
            yield
            add()

    monkeypatch.setattr(LogRewriter, "_unlocked", unlocked_between_adds)
    for _ in range(3):
        before = len(returned)
        db.compact()
        assert len(returned) - before == 12  # six slow steps
    db.close()
    return returned


@pytest.mark.parametrize(
    ("policy", "losses"), [("always", ("kept", "forgotten", "torn", "mixed")), ("everysec", ("kept",))]
)
def test_what_is_added_during_the_slow_steps_of_a_rewrite_survives(
    policy: str, losses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)
    files = SimulatedFiles(chance=chance)
    returned = live_through_rewrites(files, policy, monkeypatch)
    monkeypatch.undo()
    platter = Platter(files.image)
    for at, op in enumerate(files.journal, 1):
        platter.apply(op)
        for loss in losses:
            db = opened(SimulatedFiles(platter.image(chance, loss)))
            there = [entry[0] for entry in db.execute("XRANGE", "s", "-", "+")]
            given = [ids[0] for _, ids in returned]
            acknowledged = sum(end <= at for end, _ in returned)
            assert there == given[: len(there)] and len(there) >= acknowledged, (at, str(op), loss)
            db.close()
