"""`headrace inspect` with a server and with a snapshot, and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from headrace.cli.commands import inspect
from headrace.cli.main import main
from support.redis_server import redis_server


@pytest.fixture
def orders(client: redis.Redis) -> redis.Redis:
    for n in range(1, 251):
        client.xadd("orders", {"item": "pear", "amount": n}, id=f"{n}-0")
    client.xdel("orders", "2-0")
    client.xgroup_create("orders", "billing", "0")
    client.xreadgroup("billing", "ann", {"orders": ">"}, count=3)
    client.xreadgroup("billing", "bob", {"orders": ">"}, count=2)
    client.xack("orders", "billing", "3-0")
    return client


def snapshot(server_url: str, directory: Path) -> Path:
    """A snapshot that a redis-server writes of the stream of another one."""
    with (
        redis_server(directory) as port,
        redis.Redis.from_url(server_url) as here,
        redis.Redis(port=port) as there,
    ):
        there.restore("orders", 0, here.dump("orders"))
        there.save()
    return directory / "dump.rdb"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def test_tree_node_and_groups_are_drawn(orders, server_url: str, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", "orders", "--url", server_url, "--node", "0"]) == 0
    out = capsys.readouterr().out
    about = orders.xinfo_stream("orders")
    assert f"{about['radix-tree-keys']} keys in {about['radix-tree-nodes']} nodes" in out
    assert "249 entries in 3 nodes" in out and "99 entries + 1 deleted" in out
    assert "84 69 74 65 6d 05" in out and "84 70 65 61 72 05" in out  # item, pear
    assert "deleted: a tombstone" in out and "96 entries more" in out
    lines = [line.strip("│ ").split() for line in out.splitlines()]
    pending = [line[:2] for line in lines if line and line[-1] == "once"]
    assert pending == [["1-0", "●"], ["4-0", "●"], ["5-0", "●"], ["6-0", "●"]]
    assert "4 entries pending" in out and "244 entries not delivered yet" in out


def test_a_snapshot_gives_the_same_drawing(
    orders, server_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = snapshot(server_url, tmp_path)
    parts = ["--only", "tree", "--only", "node"]
    assert main(["inspect", "orders", "--url", server_url, *parts]) == 0
    live = capsys.readouterr().out.splitlines()
    assert main(["inspect", "orders", "--file", str(path), *parts]) == 0
    kept = capsys.readouterr().out.splitlines()
    assert kept[1:] == live[1:] and len(kept) > 40
    assert main(["inspect", "nothing", "--file", str(path)]) == 2
    assert main(["inspect", "orders", "--file", str(path), "--db", "3"]) == 2
    path.write_bytes(path.read_bytes()[:-20])
    assert main(["inspect", "orders", "--file", str(path)]) == 1


def test_an_svg_is_written(orders, server_url: str, tmp_path: Path):
    path = tmp_path / "orders.svg"
    assert main(["inspect", "orders", "--url", server_url, "--only", "tree", "--svg", str(path)]) == 0
    assert path.read_text().startswith("<svg") and "radix" in path.read_text()


def test_an_empty_stream_has_no_node(client: redis.Redis, server_url: str, capsys):
    client.xgroup_create("orders", "billing", "$", mkstream=True)
    assert main(["inspect", "orders", "--url", server_url]) == 0
    out = capsys.readouterr().out
    assert "0 entries in 0 nodes" in out and "no entries" in out


def test_errors_are_one_line(orders, server_url: str, capsys, monkeypatch: pytest.MonkeyPatch):
    orders.set("text", "x")
    for arguments in (["text"], ["nothing"], ["orders", "--node", "99"], ["orders", "--node", "x"]):
        assert main(["inspect", *arguments, "--url", server_url]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr(inspect, "FETCHED_BYTES_MAX", 100)
    assert main(["inspect", "orders", "--url", server_url]) == 2
    assert "--large" in capsys.readouterr().err
    assert main(["inspect", "orders", "--url", server_url, "--large"]) == 0
