"""Draw the radix tree of a stream: shared bytes once, and at each leaf a node with its entries.

00 00 01 9b 2f ─┬─ 4e 10 … 00 ▸ 1700000000000-0   ████████  100 entries   1,845 B
                └─ 51 7c … 00 ▸ 1700000004711-0   ███▌       44 entries     812 B

A cold run is a single node:  ▸ 1690000000000-0   2.cold    9,800 entries   98 nodes in 31.2 KiB
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.console import styles
from headrace.console.radix import RadixNode, build_tree
from headrace.console.stream_snapshot import PackedNode, StreamSnapshot
from headrace.plurals import plural

WHOLE_TREE_MAX = 32  # of a tree with more nodes only the path to the chosen one is drawn
TOP, BOTTOM, AROUND = 6, 2, 2  # of many children, those drawn: first, last, and around the chosen one
BAR_CELLS = 12
COLD_STYLE = styles.SEQ
MILLISECONDS_BYTES = 8  # bytes of milliseconds in a key, before those of the sequence


@dataclass(frozen=True)
class TreeLine:
    """A line of the drawing.

    Attributes:
        stem: The guides and bytes at its left.
        node: The node of the tree.
        expanded: Whether the children of the node are drawn.
        left_out_count: If not 0, the line stands for this many nodes that are not drawn.
    """

    stem: Text
    node: RadixNode
    expanded: bool
    left_out_count: int = 0


def tree_picture(snapshot: StreamSnapshot, chosen: int | None) -> RenderableType:
    """Return a drawing of the tree over the keys of all nodes, with the chosen one marked."""
    if not snapshot.packed_nodes:
        return Text("The stream has no entries, so the tree is only a root.", styles.GREY)
    tree = build_tree([pack.key for pack in snapshot.packed_nodes])
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "left", "left", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    fullest = max(
        (pack.live + pack.deleted for pack in snapshot.packed_nodes if pack.cold_run is None), default=1
    )
    at = 0 if chosen is None else chosen
    for line in tree_lines(tree, at, tree.key_count <= WHOLE_TREE_MAX, Text(), Text()):
        node = line.node
        if line.left_out_count:
            table.add_row(line.stem + Text(f"… {plural(line.left_out_count, 'node')} more", styles.GREY))
        elif not node.children:
            table.add_row(
                *leaf_cells(
                    line.stem, snapshot, node.first_key_index, fullest, node.first_key_index == chosen
                )
            )
        elif line.expanded:
            ways = plural(len(node.children), "way")
            table.add_row(line.stem, Text(f"after {node.depth + len(node.edge)} bytes, {ways}", styles.FAINT))
        else:
            table.add_row(line.stem, *collapsed_cells(snapshot, node))
    return Group(legend(snapshot.cold_stats is not None), Text(), table)


def collapsed_cells(snapshot: StreamSnapshot, node: RadixNode) -> Iterator[Text]:
    """Return the cells, after the stem, of a node of the tree whose children are not drawn."""
    numbers = range(node.first_key_index, node.first_key_index + node.key_count)
    inside = [snapshot.packed_nodes[number] for number in numbers]
    yield Text(f"▹ {plural(node.key_count, 'node')}")
    cold = sum(map(snapshot.is_cold, numbers))
    yield Text(f"{cold:,} in files" if cold < node.key_count else "in files", COLD_STYLE) if cold else Text()
    yield Text(plural(sum(pack.live for pack in inside), "entry"))
    yield Text(styles.format_size(sum(map(stored_bytes, inside))), styles.GREY)


def stored_bytes(pack: PackedNode) -> int:
    """Return the bytes of a node's listpack, or of a run in its file."""
    return len(pack.data) if pack.cold_run is None else pack.cold_run.storage_location.size


def legend(cold: bool) -> Text:
    """Return the meaning of the colours of a key and, if `cold`, of nodes in files."""
    text = key_legend()
    if cold:
        text.append("\nThe oldest nodes are ", styles.GREY)
        text.append("in files", COLD_STYLE)
        text.append(" instead of in memory.", styles.GREY)
    return text


def key_legend() -> Text:
    """Return the meaning of the colours of a key."""
    return Text.assemble(
        ("A key has 16 bytes: ", styles.GREY),
        ("8 of milliseconds", styles.MS),
        (", ", styles.GREY),
        ("8 of sequence", styles.SEQ),
        (". Bytes that keys share are kept once.", styles.GREY),
    )


def tree_lines(
    node: RadixNode, chosen: int, whole: bool, first_guide: Text, guide: Text
) -> Iterator[TreeLine]:
    """Return the lines of a tree from the top.

    Args:
        node: The root of the tree.
        chosen: Index of the key whose path is drawn.
        whole: Draw all nodes; otherwise a subtree beside the path is one line.
        first_guide: What is at the left of the first line.
        guide: What is at the left of the other lines.
    """
    expanded = whole or node.first_key_index <= chosen < node.first_key_index + node.key_count
    yield TreeLine(first_guide + hex_text(node.edge, node.depth), node, expanded)
    if not expanded:
        return
    shown = visible_child_indices(node.children, chosen)
    for place, number in enumerate(shown):
        if place and number > shown[place - 1] + 1:
            left_out = node.children[shown[place - 1] + 1 : number]
            yield TreeLine(
                guide + Text("│  ", styles.GREY), node, True, sum(child.key_count for child in left_out)
            )
        last = place == len(shown) - 1
        child_first_guide = guide + Text("└─ " if last else "├─ ", styles.GREY)
        child_guide = guide + Text("   " if last else "│  ", styles.GREY)
        yield from tree_lines(node.children[number], chosen, whole, child_first_guide, child_guide)


def visible_child_indices(children: list[RadixNode], chosen: int) -> list[int]:
    """Return the indices of the children that are drawn: the ends, and those around the chosen node."""
    if len(children) <= TOP + BOTTOM + 1:
        return list(range(len(children)))
    here = next(
        (
            n
            for n, node in enumerate(children)
            if node.first_key_index <= chosen < node.first_key_index + node.key_count
        ),
        0,
    )
    ends = {*range(TOP), *range(len(children) - BOTTOM, len(children))}
    around = range(max(here - AROUND, 0), min(here + AROUND + 1, len(children)))
    return sorted(ends.union(around))


def hex_text(edge: bytes, depth: int) -> Text:
    """Return the bytes of an edge in hexadecimal, with zeros dimmed."""
    text = Text()
    for at, byte in enumerate(edge, depth):
        style = styles.MS if at < MILLISECONDS_BYTES else styles.SEQ
        text.append(f"{byte:02x} ", f"dim {style}" if byte == 0 else style)
    return text


def leaf_cells(
    stem: Text, snapshot: StreamSnapshot, number: int, fullest: int, chosen: bool
) -> Iterator[Text]:
    """Return the cells of a node's line."""
    pack = snapshot.packed_nodes[number]
    yield stem
    yield Text(f"▸ {pack.id}", "bold reverse" if chosen else "bold")
    deleted = Text(f" + {pack.deleted:,} deleted", styles.ALERT) if pack.deleted else Text()
    if pack.cold_run is not None:
        yield Text(pack.cold_run.storage_location.file.name, COLD_STYLE)
        yield Text(plural(pack.live, "entry")) + deleted
        nodes = plural(pack.cold_run.inner_count(), "node")
        yield Text(f"{nodes} in {styles.format_size(stored_bytes(pack))}", styles.GREY)
        return
    live = styles.bar(pack.live / fullest, BAR_CELLS, styles.DONE)
    live.rstrip()
    dead = styles.bar(pack.deleted / fullest, BAR_CELLS, styles.ROLE_COLOURS["dead"])
    dead.rstrip()
    yield live + dead + (Text(" in a file", COLD_STYLE) if snapshot.is_cold(number) else Text())
    yield Text(plural(pack.live, "entry")) + deleted
    yield Text(styles.format_size(len(pack.data)), styles.GREY)
