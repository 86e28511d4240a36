"""redis-py's register_script on the engine of this process."""

import pytest
import redis

import headrace

pytest.importorskip("lupa.lua51")


def test_a_registered_script_runs_in_the_library():
    with headrace.open() as db, db.client() as client:
        add = client.register_script("return redis.call('XADD', KEYS[1], '*', 'n', ARGV[1])")
        add(keys=["s"], args=[1])
        add(keys=["s"], args=[2])
        assert [fields[b"n"] for _, fields in client.xrange("s")] == [b"1", b"2"]
        assert len(db.stream("s")) == 2


def test_a_script_without_end_is_ended_in_the_library():
    with headrace.open() as db, db.client() as client:
        client.config_set("busy-reply-threshold", 30)
        with pytest.raises(redis.exceptions.ResponseError, match="the script was ended after"):
            client.eval("while true do end", 0)
        assert client.eval("return 1", 0) == 1


def test_a_durable_script_is_one_transaction(tmp_path):
    with headrace.open(tmp_path / "d") as db, db.client() as client:
        client.eval("redis.call('SET', 'a', 1) redis.call('SET', 'b', 2)", 0)
    with headrace.open(tmp_path / "d") as db, db.client() as client:
        assert client.mget("a", "b") == [b"1", b"2"]
