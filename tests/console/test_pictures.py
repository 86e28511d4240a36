"""Drawings of streams of any size and any names are complete and escaped."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from headrace.cli.commands.inspect import draw
from headrace.console.listpack_picture import MAP_MAX
from headrace.console.radix import build_tree
from headrace.console.stream_snapshot import StreamSnapshot
from headrace.console.tree_picture import WHOLE_TREE_MAX, tree_lines
from headrace.streams.stream import Stream

U64_MAX = (1 << 64) - 1
PARTS = ("tree", "node", "groups")


def stream(
    entries: int, *, step: int = 1, per_node: int = 100, value: bytes = b"v", name: bytes = b"f"
) -> Stream:
    made = Stream()
    for n in range(1, entries + 1):
        made.append(n * step, 0, [name, value], 0, 0, per_node)
    return made


def drawn(snapshot: StreamSnapshot, node: str = "-1", entries: int = 3) -> str:
    console = Console(width=118, file=io.StringIO(), record=True)
    console.print(draw(snapshot, node, entries, 12, PARTS))
    return console.export_text()


@pytest.mark.parametrize("nodes", [1, 2, WHOLE_TREE_MAX, WHOLE_TREE_MAX + 1, 700, 3000])
def test_every_node_is_drawn_or_counted_once(nodes: int):
    snapshot = StreamSnapshot("s", "here", stream(nodes, step=7919, per_node=1), 0)
    tree = build_tree([pack.key for pack in snapshot.packed_nodes])
    for chosen in {0, nodes // 2, nodes - 1}:
        found = list(tree_lines(tree, chosen, nodes <= WHOLE_TREE_MAX, Text(), Text()))
        single = [line.node.first_key_index for line in found if not line.node.children]
        closed = sum(line.node.key_count for line in found if line.node.children and not line.expanded)
        assert len(single) + closed + sum(line.left_out_count for line in found) == nodes
        assert chosen in single and single == sorted(set(single))
        assert len(found) <= max(2 * WHOLE_TREE_MAX, 80)


def test_the_ribbon_has_a_constant_width():
    made = stream(1000)
    made.make_group(b"half", 500, 0, 500)
    made.make_group(b"none", 0, 0, 0)
    out = drawn(StreamSnapshot("s", "here", made, 0)).splitlines()
    after = {
        line.split()[1]: out[at + 1].count("█") for at, line in enumerate(out) if "last delivered" in line
    }
    assert after == {"half": 64, "none": 64}
    assert any("half" in line and "500 entries not delivered yet" in line for line in out)
    assert any("none" in line and "1,000 entries not delivered yet" in line for line in out)


def test_a_group_may_be_at_the_last_id_of_a_millisecond_and_of_all():
    made = stream(1000)
    made.make_group(b"half", 500, U64_MAX, -1)
    made.make_group(b"all", U64_MAX, U64_MAX, -1)
    out = drawn(StreamSnapshot("s", "here", made, 0)).splitlines()
    assert any("half" in line and "500 entries not delivered yet" in line for line in out)
    assert any("all" in line and "0 entries not delivered yet" in line for line in out)


def test_a_large_node_is_drawn_in_part():
    out = drawn(StreamSnapshot("s", "here", stream(20, per_node=0, value=b"v" * 5000), 0))
    assert "KiB more" in out and len(out.splitlines()) < 64 + MAP_MAX // 128


def test_names_that_would_move_the_cursor_are_escaped():
    evil = b"\x1b[2J\r\x07\xff"
    made = stream(3, value=evil, name=evil)
    group = made.make_group(evil, 3, 0, 3)
    consumer = group.make_consumer(evil, 0)
    group.pending.add(1, 0, consumer, 0, 1)
    out = drawn(StreamSnapshot("s", "here", made, 0))
    assert not set(out) & {"\x1b", "\r", "\x07"}
    assert out.count("\\x1b[2J") >= 4


def test_each_consumer_has_a_column_for_its_entries():
    made = stream(6)
    group = made.make_group(b"g", 6, 0, 6)
    ann, bob = group.make_consumer(b"ann", 0), group.make_consumer(b"bob", 0)
    for n, owner in ((1, ann), (2, bob), (3, bob), (4, ann)):
        group.pending.add(n, 0, owner, 0, n)
    rows = [
        line.strip("│ ").split() for line in drawn(StreamSnapshot("s", "here", made, 60_000)).splitlines()
    ]
    found = [row for row in rows if row and row[0] in ("1-0", "2-0", "3-0", "4-0") and "min" in row]
    assert [[word for word in row if word in "●│"] for row in found] == [["●"], ["│", "●"], ["│", "●"], ["●"]]
    assert [row[-1] for row in found] == ["once", "twice", "times", "times"]
