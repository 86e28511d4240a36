"""The radix tree of a stream: shared bytes once, and at each end a node with its entries.

00 00 01 9b 2f ─┬─ 4e 10 … 00 ▸ 1700000000000-0   ████████  100 entries   1,845 B
                └─ 51 7c … 00 ▸ 1700000004711-0   ███▌       44 entries     812 B
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

ALL_MAX = 32  # a tree of more nodes is drawn along the way to the chosen one
TOP, BOTTOM, ABOUT = 6, 2, 2  # of many below one, those drawn: the first, the last, and about the chosen one
BAR = 12
HALF = 8  # bytes of a key that are milliseconds; then those of the sequence


@dataclass(frozen=True)
class TreeLine:
    """A line of the tree: what stands at its left, whose it is, whether the tree below it is drawn.

    left_out: the line stands for so many nodes that are not drawn.
    """

    stem: Text
    node: RadixNode
    opened: bool
    left_out: int = 0


def tree_picture(snapshot: StreamSnapshot, chosen: int | None) -> RenderableType:
    """The tree over the keys of all nodes; the chosen one is marked."""
    if not snapshot.packs:
        return Text("The stream has no entries, so the tree is a root and nothing else.", styles.GREY)
    tree = build_tree([pack.key for pack in snapshot.packs])
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "left", "left", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    fullest = max(pack.live + pack.deleted for pack in snapshot.packs)
    at = 0 if chosen is None else chosen
    for line in lines(tree, at, tree.count <= ALL_MAX, Text(), Text()):
        node = line.node
        if line.left_out:
            table.add_row(line.stem + Text(f"… {plural(line.left_out, 'node')} more", styles.GREY))
        elif not node.children:
            table.add_row(*leaf(line.stem, snapshot.packs[node.first], fullest, node.first == chosen))
        elif line.opened:
            ways = plural(len(node.children), "way")
            table.add_row(line.stem, Text(f"after {node.depth + len(node.edge)} bytes, {ways}", styles.FAINT))
        else:
            inside = snapshot.packs[node.first : node.first + node.count]
            entries = plural(sum(pack.live for pack in inside), "entry")
            size = styles.format_size(sum(len(pack.data) for pack in inside))
            nodes = Text(f"▹ {plural(node.count, 'node')}")
            table.add_row(line.stem, nodes, Text(), Text(entries), Text(size, styles.GREY))
    return Group(legend(), Text(), table)


def legend() -> Text:
    """What the colours of a key say."""
    return Text.assemble(
        ("A key has 16 bytes: ", styles.GREY),
        ("8 of milliseconds", styles.MS),
        (", ", styles.GREY),
        ("8 of sequence", styles.SEQ),
        (". Bytes that keys share are kept once.", styles.GREY),
    )


def lines(node: RadixNode, chosen: int, all_of_it: bool, before: Text, after: Text) -> Iterator[TreeLine]:
    """The lines of a tree from the top. Unless all of it is drawn, what lies beside the way is one line.

    before: the guide of the first line; after: that of the lines below it.
    """
    on_the_way = all_of_it or node.first <= chosen < node.first + node.count
    yield TreeLine(before + hexadecimal(node.edge, node.depth), node, on_the_way)
    if not on_the_way:
        return
    shown = window(node.children, chosen)
    for place, number in enumerate(shown):
        if place and number > shown[place - 1] + 1:
            left_out = node.children[shown[place - 1] + 1 : number]
            yield TreeLine(
                after + Text("│  ", styles.GREY), node, True, sum(lower.count for lower in left_out)
            )
        last = place == len(shown) - 1
        guide = after + Text("└─ " if last else "├─ ", styles.GREY)
        lower_after = after + Text("   " if last else "│  ", styles.GREY)
        yield from lines(node.children[number], chosen, all_of_it, guide, lower_after)


def window(below: list[RadixNode], chosen: int) -> list[int]:
    """Which of many are drawn: the ends, and those about the chosen node."""
    if len(below) <= TOP + BOTTOM + 1:
        return list(range(len(below)))
    here = next((n for n, node in enumerate(below) if node.first <= chosen < node.first + node.count), 0)
    ends = {*range(TOP), *range(len(below) - BOTTOM, len(below))}
    about = range(max(here - ABOUT, 0), min(here + ABOUT + 1, len(below)))
    return sorted(ends.union(about))


def hexadecimal(edge: bytes, depth: int) -> Text:
    """The bytes of an edge; zeros are faint."""
    text = Text()
    for at, byte in enumerate(edge, depth):
        style = styles.MS if at < HALF else styles.SEQ
        text.append(f"{byte:02x} ", f"dim {style}" if byte == 0 else style)
    return text


def leaf(stem: Text, pack: PackedNode, fullest: int, chosen: bool) -> Iterator[Text]:
    """The columns of a node's line."""
    yield stem
    yield Text(f"▸ {pack.id}", "bold reverse" if chosen else "bold")
    live = styles.bar(pack.live / fullest, BAR, styles.DONE)
    live.rstrip()
    dead = styles.bar(pack.deleted / fullest, BAR, styles.ROLES["dead"])
    dead.rstrip()
    yield live + dead
    entries = plural(pack.live, "entry")
    gone = Text(f" + {pack.deleted:,} deleted", styles.LATE) if pack.deleted else Text()
    yield Text(entries) + gone
    yield Text(styles.format_size(len(pack.data)), styles.GREY)
