"""Background syncs that fail under every policy: a crash loses nothing that was acknowledged or synced."""

from __future__ import annotations

import os

import pytest

from simulation.disk import boundaries
from simulation.server_life import ServerLife

SEEDS = 60 if "HEADRACE_COMPILED" in os.environ else 8
STEPS = 60
CRASHES = 0.25  # of all boundaries


def lost_entries(life: ServerLife) -> list[str]:
    """Crash the life at many boundaries; return what is missing after one of them."""
    for boundary, platter in boundaries(life.files):
        if life.chance.random() > CRASHES:
            continue
        # A killed process leaves what it has written; a power cut what was synced.
        for mode, acknowledged in (("kept", life.added), ("forgotten", life.synced)):
            promised = {value for place, value in acknowledged if place <= boundary}
            missing = promised - life.values_in(platter.image(life.chance, mode))
            if missing:
                return [f"boundary {boundary}, {mode}: {sorted(missing)}"]
    return []


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_no_acknowledged_entry_is_lost_when_background_syncs_fail(policy):
    failures = acknowledged = 0
    for seed in range(SEEDS):
        life = ServerLife(seed, policy)
        try:
            life.run(STEPS)
        finally:
            life.close()
        failures += sum(op.what == "sync" and not op.ok for op in life.files.journal)
        acknowledged += len(life.added)
        assert lost_entries(life) == [], f"seed {seed}"
    assert failures > SEEDS and acknowledged > 20 * SEEDS


def test_the_simulation_finds_replies_that_left_too_early():
    """With the failed sync read as before, but the turn that reads it not taken for unsafe."""
    for seed in range(SEEDS):
        life = ServerLife(seed, "everysec")
        durability = life.durability
        durability._end_background_sync = lambda d=durability: d.tick(d.engine.keyspace.now)
        try:
            life.run(STEPS)
        finally:
            life.close()
        if lost_entries(life):
            return
    raise AssertionError("nothing was found")
