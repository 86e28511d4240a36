"""No schedule of producers, groups, archive runs and crashes loses an entry by trimming."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from trim_world import World, headrace_server

SEEDS = 10
STEPS = 200


@pytest.fixture(scope="module", params=["redis", "headrace"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.param == "redis":
        yield int(urlsplit(request.getfixturevalue("server_url")).port or 0)
    else:
        with headrace_server() as port:
            yield port


def test_what_goes_was_archived_and_acknowledged_by_every_group(port: int) -> None:
    removed, reborn, stops = 0, 0, set()
    for seed in range(SEEDS):
        world = World(port, seed)
        for _ in range(STEPS):
            world.step()
            if world.random.random() < 0.4:
                world.trim()
        removed += world.removed
        reborn += world.reborn
        stops |= world.stops
        world.close()
    # The schedules do reach what they are about.
    assert removed > 200 and reborn >= SEEDS
    assert {"archived", "group", "nothing", "entry", "it"} <= stops
