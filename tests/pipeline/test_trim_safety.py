"""No schedule of producers, groups, archive runs and crashes loses an entry by trimming."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import redis

from pipeline.trim_world import World
from support.headrace_server import headrace_server

SEEDS = 10
STEPS = 200


@pytest.fixture(scope="module", params=["redis", "headrace", "headrace without EVAL"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.param == "redis":
        yield int(urlsplit(request.getfixturevalue("server_url")).port or 0)
        return
    with headrace_server() as port, redis.Redis(port=port) as client:
        if request.param != "headrace":
            client.execute_command("ACL", "SETUSER", "default", "-eval")
        yield port


def test_only_entries_archived_and_acknowledged_by_every_group_are_removed(port: int) -> None:
    removed, recreated, stops = 0, 0, set()
    for seed in range(SEEDS):
        world = World(port, seed)
        for _ in range(STEPS):
            world.step()
            if world.random.random() < 0.4:
                world.trim()
        removed += world.removed
        recreated += world.recreated
        stops |= world.stops
        world.close()
    # The schedules do reach what they are about.
    assert removed > 200 and recreated >= SEEDS
    for beginning in (
        "archived up to",
        "group ",
        "the stream is not archived",
        "the last entry in /lake/main",
        "the stream has no consumer group",
    ):
        assert any(reason.startswith(beginning) for reason in stops), beginning
