"""Settings change, files are written and links are cut at random while three servers are in use."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from random import Random

import pytest
import redis

from replication.nodes import Node, nodes
from replication.writing import fill, write
from support.waiting import wait_until

pytestmark = pytest.mark.whole
ACTIONS = 60
COMMANDS_PER_ROUND = 400
SETTINGS = {
    "appendonly": ["yes", "no"],
    "appendfsync": ["always", "everysec", "no"],
    "aof-use-rdb-preamble": ["yes", "no"],
    "repl-backlog-size": ["16384", "65536", "1048576"],
    "repl-diskless-sync": ["yes", "no"],
    "client-output-buffer-limit": ["replica 1mb 0 0", "replica 256mb 64mb 60"],
    "stream-node-max-entries": ["3", "100"],
    "snapshot-effort": ["1", "25", "100"],
}
JOBS = ["BGSAVE", "BGREWRITEAOF", "CLIENT KILL TYPE replica", "CLIENT KILL TYPE master"]


def act(random: Random, node: Node) -> None:
    """Change a setting, start a job or cut a link; an error reply, such as for a second BGSAVE, is fine."""
    with contextlib.suppress(redis.ResponseError):
        if random.random() < 0.6:
            name = random.choice(list(SETTINGS))
            node.client.config_set(name, random.choice(SETTINGS[name]))
        else:
            node.client.execute_command(*random.choice(JOBS).split())


def open_descriptors(node: Node) -> int:
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


def has_log(node: Node) -> bool:
    """Whether the log on disk has a base, and so all data."""
    info = node.client.info("persistence")
    return info["aof_base_size"] > 0 and not info["aof_rewrite_in_progress"]


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_set_nothing_is_lost_and_nothing_leaks(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with nodes(tmp_path, "headrace", "headrace", "headrace") as group:
        primary, replica, last = group
        fill(primary)
        replica.follow(primary.port)
        last.follow(replica.port)
        replica.wait_for(primary)
        last.wait_for(replica)
        before = [open_descriptors(node) for node in group]
        ended = threading.Event()

        def load() -> None:
            round_seed = seed
            while not ended.is_set():
                write(primary.port, round_seed, COMMANDS_PER_ROUND)
                round_seed += 1000

        writer = threading.Thread(target=load)
        writer.start()
        try:
            for _ in range(ACTIONS):
                act(random, random.choice(group))
                ended.wait(random.random() / 10)
        finally:
            ended.set()
            writer.join()
        for node in group:
            node.client.config_set("client-output-buffer-limit", "replica 256mb 64mb 60")
            node.client.config_set("appendonly", "yes")
        replica.wait_for(primary)
        last.wait_for(replica)
        state = primary.state()
        assert replica.state() == state
        assert last.state() == state
        for node, count in zip(group, before, strict=True):
            wait_until(lambda node=node: has_log(node), node.log()[-1500:])
            wait_until(lambda node=node, count=count: open_descriptors(node) <= count + 2)
        for node in group:
            node.kill()
        for node in group:
            node.start()
            assert node.state() == state
