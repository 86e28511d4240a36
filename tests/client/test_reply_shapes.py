"""Every reply of a real server has the shape that is declared for its command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
import redis

import headrace
from headrace.client.servers import servers_at
from headrace.client.stream_names import stream_name
from headrace.errors import CommandError
from support.headrace_server import headrace_server
from support.redis_server import redis_server

REQUESTS = """\
XADD s 1-1 a 1
XADD s 1-2 b 2 b 3
XADD s NOMKSTREAM 1-3 c 3
XADD missing NOMKSTREAM 1-3 c 3
XLEN s
XLEN missing
XGROUP CREATE s g 0
XGROUP CREATE empty g 0 MKSTREAM
XREADGROUP GROUP g ann COUNT 2 STREAMS s >
XREADGROUP GROUP g ann STREAMS empty >
XDEL s 1-2
XREADGROUP GROUP g ann STREAMS s 0
XRANGE s - +
XRANGE missing - +
XREVRANGE s + - COUNT 1
XREAD STREAMS s 0
XREAD STREAMS s $
XPENDING s g
XPENDING s g - + 10
XPENDING s g IDLE 0 - + 10 ann
XPENDING empty g
XCLAIM s g bob 0 1-1
XCLAIM s g bob 0 1-1 JUSTID
XAUTOCLAIM s g ann 0 0
XAUTOCLAIM s g ann 0 0 JUSTID
XINFO STREAM s
XINFO STREAM s FULL
XINFO STREAM empty
XINFO STREAM missing
XINFO GROUPS s
XINFO GROUPS empty
XINFO CONSUMERS s g
XINFO CONSUMERS empty g
XACK s g 1-1
XTRIM s MAXLEN 0
XINFO STREAM s
MEMORY USAGE s
MEMORY USAGE missing
SET text value
GET text
GET missing
TYPE s
TYPE missing
DUMP s
DUMP missing
SCAN 0
SCAN 0 COUNT 1
TIME
INFO
WAIT 0 1
COMMAND INFO get nothing
DEL text missing
"""


@pytest.fixture(scope="module", params=["headrace", "redis"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "redis":
        with redis_server() as port:
            yield f"redis://127.0.0.1:{port}"
    else:
        directory: Path = tmp_path_factory.mktemp("server")
        with headrace_server(directory) as port:
            yield f"redis://127.0.0.1:{port}"


def test_no_reply_of_a_server_is_rejected(url: str) -> None:
    with headrace.connect(url) as db:
        for line in REQUESTS.splitlines():
            missing = suppress(CommandError) if "missing" in line else nullcontext()
            with missing:
                db.execute(*line.split())


def test_no_reply_is_rejected_that_redis_py_converts(url: str) -> None:
    with servers_at(url) as servers, redis.Redis.from_url(url) as plain:
        name = b"\xff\x00 name"
        plain.xadd(name, {b"\xfe": b"\xfd", "": ""}, "5-5")
        plain.xgroup_create(name, name, "0")
        plain.xreadgroup(name, name, {name: ">"})
        client = servers.client()
        assert stream_name(name) in servers.matching_streams(".*")
        assert client.xinfo_stream(name)["length"] == 1
        assert client.xinfo_stream(name, full=True)["length"] == 1
        assert client.xinfo_groups(name)[0]["name"] == name
        assert client.xinfo_consumers(name, name)[0]["pending"] == 1
        assert client.xpending(name, name)["pending"] == 1
        assert client.xpending_range(name, name, "-", "+", 10)[0]["times_delivered"] == 1
        assert client.xrange(name) == [(b"5-5", {b"\xfe": b"\xfd", b"": b""})]
        assert client.xread({name: "0"})[0][0] == name
        assert client.type(name) == b"stream" and client.get("missing") is None
        assert client.memory_usage(name) > 0 and client.dump(name)
        pipe = client.pipeline(transaction=True)
        pipe.get("missing").xlen(name).xinfo_stream(name).time()
        assert pipe.execute()[1] == 1
