"""Data for tests of replication: all kinds of it, and random changes."""

from __future__ import annotations

import time

import redis

from replication.nodes import Node, Raw
from support.command_generator import CommandGenerator


def write(port: int, seed: int, count: int) -> None:
    """Send random commands, of which some fail. Afterwards no key has an expiry time."""
    generator = CommandGenerator("changes", seed)
    with Raw(port) as client:
        for _ in range(count):
            generator.now = int(time.time() * 1000)
            rows = client.request("XREVRANGE", "s", "+", "-", "COUNT", 20)
            generator.known = [row[0] for row in rows] if isinstance(rows, list) else []
            client.request(*(argument for argument in generator.command() if argument != b"BLOCK"))
        client.request("EXEC")
        for database in range(3):
            client.request("SELECT", database)
            for key in client.request("KEYS", "*"):
                client.request("PERSIST", key)  # no key expires while the servers are compared


def fill(node: Node) -> None:
    """All kinds of data in two databases: groups, pending entries, deleted entries, expiry times."""
    client = node.client
    for n in range(3000):
        client.xadd("big", {"n": n, "text": "x" * 40}, id=f"{n + 1}-0")
    client.xdel("big", *[f"{n}-0" for n in range(10, 900, 7)])
    client.xgroup_create("big", "g", "0")
    client.xgroup_create("big", "idle", "500-0")
    client.xreadgroup("g", "ann", {"big": ">"}, count=50)
    client.xack("big", "g", "1-0", "2-0")
    client.xgroup_createconsumer("big", "g", "bob")
    client.xadd("empty", {"a": 1})
    client.xtrim("empty", maxlen=0)
    client.set("text", b"\x00\xff" * 100)
    client.set("number", 12345, ex=3600)
    with redis.Redis(port=node.port, db=2) as other:
        other.xadd("elsewhere", {"a": 1}, id="7-7")
