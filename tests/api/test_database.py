"""A Database as users hold it: what it is made of, and the directory that it shares with a server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

import headrace
from headrace.errors import HeadraceError, UsageError
from support.headrace_server import headrace_server
from support.redis_server import redis_server


def test_a_server_takes_over_a_directory_and_gives_it_back(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        db.backend.add_many(b"s", [{"n": n} for n in range(10)])
        db.execute("XGROUP", "CREATE", "s", "g", "0")
        db.execute("XREADGROUP", "GROUP", "g", "c", "COUNT", 4, "STREAMS", "s", ">")
        db.execute("SET", "k", "v", "PX", 10_000_000)
        db.execute("XADD", "other", "IDMP", "p", "i", "*", "a", "b")
        before = db.execute("XINFO", "STREAM", "s", "FULL")
    with headrace_server(tmp_path, "--appendonly", "yes") as port, redis.Redis(port=port) as client:
        assert client.xlen("s") == 10
        assert client.xpending("s", "g")["pending"] == 4
        assert client.pttl("k") > 9_000_000
        client.xadd("s", {"n": 10})
    with headrace.open(tmp_path) as db:
        after = db.execute("XINFO", "STREAM", "s", "FULL")
        assert before[before.index(b"length") + 1] == 10
        assert after[after.index(b"length") + 1] == 11
        assert db.execute("XPENDING", "s", "g")[0] == 4


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_servers_directory_opens_in_a_program(tmp_path, preamble) -> None:
    options = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble]
    with headrace_server(tmp_path, *options) as port, redis.Redis(port=port) as client:
        for n in range(50):
            client.xadd("s", {"n": n})
        with pytest.raises(HeadraceError, match=rf"redis://127.0.0.1:{port}"):
            headrace.open(tmp_path)
    with headrace.open(tmp_path) as db:
        assert db.execute("XLEN", "s") == 50


def test_a_directory_with_nothing_but_a_snapshot_opens(tmp_path) -> None:
    with headrace_server(tmp_path) as port, redis.Redis(port=port) as client:
        client.xadd("s", {"n": 1})
        client.save()
    assert (tmp_path / "dump.rdb").exists()
    for expected in (1, 2):
        with headrace.open(tmp_path) as db:
            assert db.execute("XLEN", "s") == expected
            db.backend.add(b"s", b"*", {"n": 2})


def test_redis_reads_what_a_program_has_written(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        db.backend.add_many(b"s", [{"n": n} for n in range(10)])
        db.compact()
        db.backend.add(b"s", b"*", {"n": 10})
    os.unlink(tmp_path / "headrace.lock")
    with redis_server(tmp_path, "--appendonly", "yes") as port, redis.Redis(port=port) as client:
        assert client.xlen("s") == 11


def test_importing_headrace_imports_no_engine_and_no_redis(tmp_path: Path) -> None:
    code = (
        "import sys, headrace; print('headrace.engine.engine' in sys.modules, 'redis' in sys.modules);"
        "headrace.open(sys.argv[1]).execute('PING');"
        "print(*(name in sys.modules for name in ('redis', 'concurrent.futures', 'ctypes')))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * 5


def test_the_names_of_the_library_are_there() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
    assert set(headrace.__all__) <= set(dir(headrace))
    with pytest.raises(AttributeError, match="nothing_like_it"):
        headrace.nothing_like_it  # noqa: B018


def test_a_stream_of_the_database_is_on_its_engine() -> None:
    with headrace.open() as db:
        db.stream("s").add({"a": "b"})
        assert db.execute("XLEN", "s") == 1
        assert db.client().xlen("s") == 1
        assert db.info().keys == 1


def test_settings_are_those_of_the_server(tmp_path) -> None:
    with headrace.open(tmp_path, stream_node_max_entries=2, stream_idmp_duration=7) as db:
        assert db.execute("CONFIG", "GET", "stream-idmp-duration")[1] == b"7"
        assert db.execute("CONFIG", "GET", "appendfsync") == [b"appendfsync", b"always"]
        db.backend.add_many(b"s", [{"n": n} for n in range(10)])
        info = db.execute("XINFO", "STREAM", "s")
        assert info[info.index(b"radix-tree-keys") + 1] == 5
    with pytest.raises(UsageError, match="from 1 to 86400"):
        headrace.open(stream_idmp_duration=0)


def test_what_is_no_directory_and_what_is_no_address_say_where_to_go() -> None:
    with pytest.raises(UsageError, match=r"headrace\.connect\(\)"):
        headrace.open("redis://127.0.0.1:7777")
    with pytest.raises(UsageError, match=r"redis://.*headrace\.open\(\)"):
        headrace.connect("shop")


def test_the_streams_that_are_there(database: headrace.Database) -> None:
    assert database.streams() == []
    names = [f"s:{n:04}" for n in range(1200)]
    database.backend.request_all([(b"XADD", name.encode(), b"*", b"a", b"b") for name in [*names, "t"]])
    database.execute("SET", "s:text", "x")
    assert [stream.name for stream in database.streams("s:*")] == names
    assert [stream.name for stream in database.streams()] == [*names, "t"]
    assert len(database.streams("t")[0]) == 1


def test_a_database_says_what_it_is(tmp_path: Path) -> None:
    with headrace.open() as db:
        assert repr(db) == "Database(in memory)"
    with headrace.open(tmp_path) as db:
        assert repr(db) == f"Database({str(tmp_path)!r}, fsync='always')"
    assert repr(db) == f"Database({str(tmp_path)!r}, fsync='always', closed)"
