"""Random histories, each crashed at every boundary: nothing that was acknowledged is lost, nothing appears.

`make simulate SEED=s N=n` runs n histories from seed s on; a failing one says its seed and fails again.
"""

import os
from random import Random

import pytest

from simulation.simulation import History
from simulation.world import Setup

FIRST = int(os.environ.get("HEADRACE_SIMULATE_SEED", "1"))
HISTORIES = int(os.environ.get("HEADRACE_SIMULATE_N", "1000"))
SAMPLE = 24  # of them in `make test`
BLOCK = 100  # histories a test


def blocks(part=1):
    """Of every `part`-th of the histories: a few for `make test`, and all in blocks as slow tests."""
    end = FIRST + HISTORIES // part
    few = range(FIRST, min(FIRST + SAMPLE // part, end))
    slow = [
        pytest.param(range(first, min(first + BLOCK, end)), marks=pytest.mark.slow)
        for first in range(FIRST, end, BLOCK)
    ]
    return pytest.mark.parametrize("seeds", [few, *slow], ids=str)


@blocks()
def test_random_histories_survive_crashes(seeds):
    images = 0
    for seed in seeds:
        history = History(seed)
        history.run()
        images += history.images
    assert images > 0


@blocks(part=2)
def test_random_histories_with_rules_survive_crashes(seeds):
    for seed in seeds:
        setup = Setup.by_chance(Random(seed))
        setup.rules = True
        History(seed, setup).run()


@blocks(part=2)
def test_random_histories_with_cold_runs_survive_crashes(seeds):
    runs = referred = 0
    for seed in seeds:
        chance = Random(seed)
        setup = Setup.by_chance(chance)
        setup.cold = chance.choice((30, 100, 400))
        setup.node_entries = min(setup.node_entries, 4)
        setup.rdb_base = setup.rdb_base or chance.random() < 0.7
        setup.rewrites = setup.rewrites or chance.random() < 0.7
        history = History(seed, setup)
        history.run()
        runs += history.cold_runs
        referred += history.bases_with_cold_runs
    assert runs > 0 and referred > 0


@blocks(part=12)
def test_random_histories_with_rules_for_cold_runs_survive_crashes(seeds):
    runs = rewritten = referred = 0
    for seed in seeds:
        chance = Random(seed)
        setup = Setup.by_chance(chance)
        setup.rules = setup.hot_rules = True
        setup.cold = chance.choice((30, 100, 400))
        setup.node_entries = min(setup.node_entries, 4)
        setup.rdb_base = setup.rdb_base or chance.random() < 0.7
        setup.rewrites = setup.rewrites or chance.random() < 0.7
        history = History(seed, setup)
        history.run()
        runs += history.cold_runs
        rewritten += history.rewritten_runs
        referred += history.bases_with_cold_runs
    assert runs > 0 and rewritten > 0 and referred > 0


def test_a_seed_is_the_same_history_again():
    for seed in range(FIRST, FIRST + 3):
        one, other = History(seed), History(seed)
        one.run()
        other.run()
        assert (one.setup, one.images, one.boundaries) == (other.setup, other.images, other.boundaries)
        assert one.chance.random() == other.chance.random()
