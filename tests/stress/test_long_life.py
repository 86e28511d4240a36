"""A server at work, killed now and then: nothing that was acknowledged is lost.

HEADRACE_STRESS_SECONDS=1200 has it work for twenty minutes, and be killed fifteen times.
"""

from __future__ import annotations

import os

import pytest

from stress.load import PIPELINE, World

pytestmark = pytest.mark.whole

SECONDS = float(os.environ.get("HEADRACE_STRESS_SECONDS", "2"))
KILLS = max(int(SECONDS / 80), 1)


@pytest.mark.parametrize("limit", ["0", "50kb"])
def test_nothing_is_lost_in_a_life_of_work_and_kills(launch, limit: str):
    arguments = ["--stream-hot-memory", limit]
    arguments += ["--auto-aof-rewrite-min-size", "4mb", "--save", "30 1000", "--metrics-port", "free"]
    world = World(lambda: launch(*arguments), seed=1, pause=0.02)
    told = world.work(SECONDS, KILLS)
    world.check()
    added = sum(one.added for one in world.producers)
    again = sum(one.again for one in world.readers)
    print("\n".join(["", *told, f"{added} added, {again} read again, done besides: {world.steward.done}"]))
    assert world.kills == KILLS
    assert all(one.added > PIPELINE for one in world.producers)
    log = world.server.log()
    assert [line for line in log if " ERROR " in line or "Traceback" in line or "Exception" in line] == []
    assert world.server.end() == 0
