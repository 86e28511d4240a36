"""redis-cli, redis-benchmark and redis-py talk to a running server as they would to redis-server."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import redis

CLI = shutil.which("redis-cli")
BENCHMARK = shutil.which("redis-benchmark")


def cli(server, *words: str, stdin: str | None = None) -> str:
    assert CLI is not None
    done = subprocess.run(
        [CLI, "-p", str(server.port), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.skipif(CLI is None, reason="redis-cli is not installed")
def test_redis_cli_adds_and_reads(server) -> None:
    assert cli(server, "XADD", "s", "5-1", "item", "pear") == "5-1\n"
    assert cli(server, "XRANGE", "s", "-", "+").split() == ["5-1", "item", "pear"]
    assert "ERR The ID specified in XADD is equal or smaller" in cli(server, "XADD", "s", "5-1", "a", "b")
    assert (
        cli(server, "-3", "--json", "XREAD", "STREAMS", "s", "0").strip() == '{"s":[["5-1",["item","pear"]]]}'
    )


@pytest.mark.skipif(CLI is None, reason="redis-cli is not installed")
def test_redis_cli_sends_a_transaction_and_mass_inserts(server) -> None:
    assert cli(server, stdin="MULTI\nINCR n\nINCR n\nEXEC\n").split() == ["OK", "QUEUED", "QUEUED", "1", "2"]
    piped = "".join(f"XADD p {i}-1 f {i}\r\n" for i in range(1, 1001))
    assert "errors: 0, replies: 1000" in cli(server, "--pipe", stdin=piped)
    assert cli(server, "XLEN", "p") == "1000\n"
    assert "xadd" in cli(server, "COMMAND", "DOCS", "XADD")


@pytest.mark.skipif(BENCHMARK is None, reason="redis-benchmark is not installed")
def test_redis_benchmark_gets_every_answer(server) -> None:
    assert BENCHMARK is not None
    words = ["-p", str(server.port), "-c", "20", "-P", "16", "-n", "20000", "--csv"]
    for command in (["XADD", "bench", "*", "f", "v"], ["SET", "k", "v"], ["GET", "k"], ["PING"]):
        done = subprocess.run(
            [BENCHMARK, *words, *command], capture_output=True, text=True, timeout=400, check=True
        )
        assert "error" not in (done.stdout + done.stderr).lower()
    assert redis.Redis(port=server.port).xlen("bench") == 20_000


@pytest.mark.skipif(BENCHMARK is None, reason="redis-benchmark is not installed")
def test_redis_benchmark_runs_all_tests_that_exist_here(server) -> None:
    assert BENCHMARK is not None
    words = [BENCHMARK, "-p", str(server.port), "-c", "5", "-n", "100", "--csv"]
    named = [*words, "-t", "ping,set,get,incr,mset,xadd"]
    done = subprocess.run(named, capture_output=True, text=True, timeout=60, check=True)
    tests = {line.split(",")[0].strip('"') for line in done.stdout.splitlines()[1:]}
    assert tests >= {"PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET (10 keys)"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "ERR unknown command 'LPUSH'" in done.stdout + done.stderr


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_works_through_a_pool_a_pipeline_and_a_blocking_read(server, protocol: int) -> None:
    client = redis.Redis(port=server.port, protocol=protocol, decode_responses=True)
    with client.pipeline() as pipe:
        for i in range(1, 6):
            pipe.xadd("orders", {"item": f"pear{i}"}, id=f"{i}-0")
        assert pipe.execute() == [f"{i}-0" for i in range(1, 6)]
    assert client.xrange("orders", "2-0", "3-0") == [("2-0", {"item": "pear2"}), ("3-0", {"item": "pear3"})]
    assert client.xinfo_stream("orders")["length"] == 5
    assert client.xdel("orders", "1-0") == 1
    assert client.xtrim("orders", maxlen=2, approximate=False) == 2
    assert not client.xread({"orders": "$"}, block=20)
    assert client.set("n", 1, ex=100) and client.incr("n") == 2 and 0 < client.ttl("n") <= 100
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.xadd("n", {"a": "b"})
    assert client.info("server")["redis_mode"] == "standalone"
