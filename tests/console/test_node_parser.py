"""The node parser covers every byte and returns the entries of the server."""

from __future__ import annotations

import random

import pytest
import redis

from headrace.console.node_parser import DEAD, HEADER, InvalidNode, parse_node
from headrace.console.radix import RadixNode, build_tree, node_count
from headrace.console.stream_snapshot import StreamSnapshot, from_payload
from headrace.errors import UsageError


def fill(client: redis.Redis, seed: int) -> None:
    """A stream with all encodings of elements, own fields, tombstones and IDs far apart."""
    random.seed(seed)
    ms = random.choice([1, 1_700_000_000_000, (1 << 64) - 1000])
    pipe = client.pipeline(transaction=False)
    ids = []
    for n in range(random.randrange(1, 400)):
        value = random.choice(
            ["x" * random.choice([0, 1, 63, 64, 127, 128, 500]), n, -n, n << 20, -(n << 40)]
        )
        fields = {"a": value, "b": "y"} if random.random() < 0.7 else {f"f{n % 5}": value}
        ids.append(f"{ms}-{n + 1}")
        pipe.xadd("orders", fields, id=ids[-1])
        ms += random.choice([0, 0, 1]) if ms > 1 << 63 else random.choice([0, 1, 50, 100_000])
    pipe.xdel("orders", *random.sample(ids, len(ids) // 5), "1-0")
    pipe.execute()


def snapshot(client: redis.Redis) -> StreamSnapshot:
    port = client.connection_pool.connection_kwargs["port"]
    raw = redis.Redis(port=port)
    with raw:
        payload = raw.dump("orders")
    assert payload is not None
    return from_payload("orders", "redis", payload)


@pytest.mark.parametrize("seed", range(4))
def test_the_parsed_entries_are_those_of_the_server(client: redis.Redis, seed: int):
    fill(client, seed)
    packs = snapshot(client).packed_nodes
    entries = [entry for pack in packs for entry in pack.parse().entries if not entry.is_deleted]
    expected = client.xrange("orders")
    assert [entry.id for entry in entries] == [entry_id for entry_id, _ in expected]
    for entry, (_, fields) in zip(entries, expected, strict=True):
        values = [part.element.value for part in entry.parts if part.name.startswith("= ")]
        shown = [str(v) if isinstance(v, int) else v.decode() for v in values]
        assert shown == list(fields.values())
    for pack in packs:
        node = pack.parse()
        parts = [*node.master_parts, *(part for entry in node.entries for part in entry.parts)]
        covered = node.data[:6] + b"".join(part.element.raw for part in parts) + b"\xff"
        assert covered == node.data
        assert (node.live, len(node.entries) - node.live) == (pack.live, pack.deleted)
        roles = node.byte_roles()
        assert len(roles) == len(node.data) and roles.count(HEADER) == 7
        assert (DEAD in roles) == (pack.deleted > 0)


@pytest.mark.parametrize("seed", range(4))
def test_the_tree_has_the_nodes_of_the_server(client: redis.Redis, seed: int):
    fill(client, seed)
    found = snapshot(client)
    keys = [pack.key for pack in found.packed_nodes]
    tree = build_tree(keys)
    about = client.xinfo_stream("orders")
    assert len(keys) == about["radix-tree-keys"] == tree.key_count
    assert node_count(tree) == about["radix-tree-nodes"] == found.stream.nodes.node_count
    assert [key for key, _ in ways(tree, b"")] == keys


def ways(twig: RadixNode, before: bytes):
    assert twig.depth == len(before)
    if not twig.children:
        yield before + twig.edge, twig.first_key_index
    for lower in twig.children:
        yield from ways(lower, before + twig.edge)


def test_a_node_with_a_wrong_byte_is_rejected_or_completely_parsed(client: redis.Redis):
    for n in range(12):
        client.xadd(
            "orders", {"a": n * 1000, "b": "x" * (n * 12)} if n % 3 else {"c": -n}, id=f"{n * n + 1}-0"
        )
    client.xdel("orders", "5-0")
    pack = snapshot(client).packed_nodes[0]
    refused = 0
    for at in range(len(pack.data)):
        data = pack.data[:at] + bytes([pack.data[at] ^ 0x81]) + pack.data[at + 1 :]
        try:
            node = parse_node(pack.key, data)
        except InvalidNode:
            refused += 1
        else:
            assert len(node.byte_roles()) == len(data)
    assert refused > len(pack.data) // 4
    for n in range(len(pack.data)):
        with pytest.raises(InvalidNode):
            parse_node(pack.key, pack.data[:n])


def test_a_node_is_found_by_number_and_by_id(client: redis.Redis):
    for n in range(1, 251):
        client.xadd("orders", {"a": n}, id=f"{n}-0")
    found = snapshot(client)
    last = len(found.packed_nodes) - 1
    assert found.node_index("0") == 0 and found.node_index("-1") == last == 2
    assert found.node_index("1-0") == 0 and found.node_index("101-0") == 1 and found.node_index("250-9") == 2
    assert (
        found.rank(101, 0, True) == 100
        and found.rank(150, 0, True) == 149
        and found.rank(150, 0, False) == 100
    )
    for wrong in ("3", "-4", "x", "1-x", f"{1 << 64}-0"):
        with pytest.raises(UsageError):
            found.node_index(wrong)
