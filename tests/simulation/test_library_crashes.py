"""The library's database after a power cut: what was returned is there, and batches are complete."""

import random

import pytest
from disk import Platter, SimulatedFiles

import headrace
from headrace.api.database import build_database
from headrace.api.local.clock import ManualClock
from headrace.api.local.storage import Storage
from headrace.keyspace.settings import Settings


def opened(files: SimulatedFiles) -> headrace.Database:
    return build_database(Storage(files, "always", rewrite_min_bytes=3000), ManualClock(), Settings())


def live(files: SimulatedFiles, chance: random.Random) -> list[tuple[int, list[bytes]]]:
    """Add entries one way or the other; (operations of the disk when the call returned, IDs it gave)."""
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
