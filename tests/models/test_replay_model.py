"""Whatever a history does to a keyspace, its effects do it again: the two cannot be told apart."""

import os

import pytest

from support.all_commands import Follower, History
from support.portrait import alive, differences, portrait

SEEDS, TURNS = (40, 1500) if "HEADRACE_COMPILED" in os.environ else (6, 400)


def look(engine, now):
    return alive(portrait(engine.keyspace, times=False), now)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_effects_repeat_a_history(seed):
    history = History(seed)
    late = 0 if history.restoring else 10_000_000  # RESTORE forgets what producers may forget by now
    follower = Follower(history.now + late)
    for _ in range(10):
        history.run(TURNS // 10)
        follower.repeat(history.engine.effects.take())
        moment = history.latest + 1
        assert differences(look(history.engine, moment), look(follower.engine, moment)) == []
