"""The radix tree of a stream: shared bytes once, and at each end a node with its entries.

00 00 01 9b 2f ─┬─ 4e 10 … 00 ▸ 1700000000000-0   ████████  100 entries   1,845 B
                └─ 51 7c … 00 ▸ 1700000004711-0   ███▌       44 entries     812 B
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.console import ink
from headrace.console.radix import Twig, grow
from headrace.console.specimen import Pack, Specimen

TOP, BOTTOM = 12, 4  # of many nodes below one, those drawn
BAR = 12
HALF = 8  # bytes of a key that are milliseconds; then those of the sequence


def tree_picture(specimen: Specimen, chosen: int | None) -> RenderableType:
    """The tree over the keys of all nodes; the chosen one is marked."""
    if not specimen.packs:
        return Text("The stream has no entries, so the tree is a root and nothing else.", ink.GREY)
    tree = grow([pack.key for pack in specimen.packs])
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "left", "left", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    fullest = max(pack.live + pack.deleted for pack in specimen.packs)
    for stem, twig, left_out in lines(tree, Text(), Text()):
        if left_out:
            table.add_row(stem + Text(f"… {ink.plural(left_out, 'node')} more", ink.GREY))
        elif twig.below:
            below = ink.plural(len(twig.below), "way")
            table.add_row(stem, Text(f"after {twig.depth + len(twig.edge)} bytes, {below}", ink.FAINT))
        else:
            pack = specimen.packs[twig.first]
            table.add_row(*leaf(stem, pack, fullest, twig.first == chosen))
    return Group(legend(), Text(), table)


def legend() -> Text:
    """What the colours of a key say."""
    return Text.assemble(
        ("A key has 16 bytes: ", ink.GREY),
        ("8 of milliseconds", ink.MS),
        (", ", ink.GREY),
        ("8 of sequence", ink.SEQ),
        (". Bytes that keys share are kept once.", ink.GREY),
    )


def lines(twig: Twig, before: Text, after: Text) -> Iterator[tuple[Text, Twig, int]]:
    """The lines of a tree from the top: what stands at the left, whose it is, how many are left out.

    before: the guide of the first line; after: that of the lines below it.
    """
    yield before + hexadecimal(twig.edge, twig.depth), twig, 0
    shown = list(range(len(twig.below)))
    if len(shown) > TOP + BOTTOM + 1:
        shown = shown[:TOP] + [-1] + shown[-BOTTOM:]
    for place, number in enumerate(shown):
        last = place == len(shown) - 1
        if number < 0:
            left_out = sum(lower.count for lower in twig.below[TOP:-BOTTOM])
            yield after + Text("├─ ", ink.GREY), twig, left_out
            continue
        guide = after + Text("└─ " if last else "├─ ", ink.GREY)
        yield from lines(twig.below[number], guide, after + Text("   " if last else "│  ", ink.GREY))


def hexadecimal(edge: bytes, depth: int) -> Text:
    """The bytes of an edge; zeros are faint."""
    text = Text()
    for at, byte in enumerate(edge, depth):
        style = ink.MS if at < HALF else ink.SEQ
        text.append(f"{byte:02x} ", f"dim {style}" if byte == 0 else style)
    return text


def leaf(stem: Text, pack: Pack, fullest: int, chosen: bool) -> Iterator[Text]:
    """The columns of a node's line."""
    yield stem
    yield Text(f"▸ {pack.id}", "bold reverse" if chosen else "bold")
    live = ink.bar(pack.live / fullest, BAR, ink.DONE)
    live.rstrip()
    dead = ink.bar(pack.deleted / fullest, BAR, ink.ROLES["dead"])
    dead.rstrip()
    yield live + dead
    entries = ink.plural(pack.live, "entry", "entries")
    gone = Text(f" + {pack.deleted:,} deleted", ink.LATE) if pack.deleted else Text()
    yield Text(entries) + gone
    yield Text(ink.size(len(pack.data)), ink.GREY)
