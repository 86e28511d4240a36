"""A directory goes to a redis-server that knows no newer commands: after a rewrite nothing is missing."""

from __future__ import annotations

from pathlib import Path

from support.redis_server import redis_server
from support.speaking import Client
from support.waiting import wait_until

WORK = """
XADD s IDMP p one * f v
XADD s IDMPAUTO p * f w
XADD s DELREF MAXLEN = 100 * f x
XGROUP CREATE s g 0
XREADGROUP GROUP g ann STREAMS s >
XCFGSET s IDMP-DURATION 7
XADD t 1-0 f v
XADD t 2-0 f v
XADD t 3-0 f v
XGROUP CREATE t g 0
XREADGROUP GROUP g ann COUNT 2 STREAMS t >
XACKDEL t g DELREF IDS 1 1-0
XNACK t g FAIL IDS 1 2-0
XDELEX t KEEPREF IDS 1 3-0
"""
ASKED = ("XRANGE s - +", "XRANGE t - +", "XPENDING s g", "XINFO STREAM s")


def seen(client: Client) -> list[object]:
    """What both servers can say of the streams; of XINFO, what 7.0 says: up to the last entry."""
    said = [client.request(*line.split()) for line in ASKED]
    facts = said.pop()
    assert isinstance(facts, list)
    known = dict(zip(facts[::2], facts[1::2], strict=True))
    return [*said, known[b"length"], known[b"entries-added"], known[b"last-generated-id"]]


def test_after_a_rewrite_an_older_server_has_it_all(start, tmp_path: Path) -> None:
    server = start("--appendonly", "yes")
    client = server.connect()
    for line in WORK.strip().splitlines():
        reply = client.request(*line.split())
        assert not isinstance(reply, Exception), (line, reply)
    client.request("BGREWRITEAOF")
    wait_until(lambda: client.info()["aof_rewrites"] == "1")
    before = seen(client)
    server.stop()
    with redis_server(tmp_path, "--appendonly", "yes") as port, Client.to(port) as older:
        assert seen(older) == before
        pending = older.request("XPENDING", "t", "g", "-", "+", "9")
        assert isinstance(pending, list) and [one[0] for one in pending] == [b"2-0"]
