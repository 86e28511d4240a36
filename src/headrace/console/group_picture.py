"""The groups of a stream: how far each has come, and its pending list, with whose each entry is.

billing   ██████████▒▒███░░░░░░░░   2 pending, lag 60

1700000000003-0   ●       4.2 s ago   once
1700000000004-0   │ ●     4.1 s ago   3 times
1700000000007-0   ●       1.0 s ago   once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.console import styles
from headrace.console.escaping import printable
from headrace.console.stream_snapshot import PendingEntry, StreamSnapshot, pending_entries
from headrace.plurals import plural
from headrace.streams.group import Group as StreamGroup

RIBBON = 64
COLUMNS = len(styles.CONSUMERS)  # consumers that have a column of their own
NAME_MAX = 12
EXACT_NODES = 200  # of so many nodes and fewer, every ID has its very place on the ribbon


def group_picture(snapshot: StreamSnapshot, most: int) -> RenderableType:
    """All groups; of each pending list the first so many entries."""
    groups = snapshot.stream.groups()
    if not groups:
        return Text("The stream has no groups.", styles.GREY)
    parts = [part for group in groups for part in (Text(), *one_group(snapshot, group, most))]
    return Group(legend(), *parts)


def legend() -> Text:
    """What the colours of a ribbon say."""
    return Text.assemble(
        ("██", styles.DONE),
        (" acknowledged or passed over  ", styles.GREY),
        ("██", styles.PENDING),
        (" pending  ", styles.GREY),
        ("██", styles.WAITING),
        (" not delivered yet;  the whole ribbon is the stream", styles.GREY),
    )


def one_group(snapshot: StreamSnapshot, group: StreamGroup, most: int) -> Iterator[RenderableType]:
    """A ribbon, and below it the pending list."""
    pending = list(pending_entries(group))
    name = Text.assemble((printable(group.name), "bold"))
    name.append(f"   last delivered {group.last_ms}-{group.last_seq}", styles.GREY)
    behind = snapshot.stream.length - delivered(snapshot, group)
    name.append(
        f"   {plural(len(pending), 'entry')} pending",
        styles.PENDING if pending else styles.GREY,
    )
    name.append(f"   {plural(behind, 'entry')} not delivered yet", styles.GREY)
    yield name
    yield ribbon(snapshot, group, pending)
    if pending:
        yield Text()
        yield pending_list(snapshot, group, pending, most)


def delivered(snapshot: StreamSnapshot, group: StreamGroup) -> int:
    """How many entries that are there the group has gone past."""
    return snapshot.rank(group.last_ms, group.last_seq + 1, True)


def ribbon(snapshot: StreamSnapshot, group: StreamGroup, pending: list[PendingEntry]) -> Text:
    """The stream from its first entry to its last, in the colours of what the group has done with it."""
    total = max(snapshot.stream.length, 1)
    cells = [0] * RIBBON  # pending entries in each
    exactly = len(snapshot.packs) <= EXACT_NODES
    for one in pending:
        rank = snapshot.rank(one.ms, one.seq, exactly)
        cells[min(rank * RIBBON // total, RIBBON - 1)] += 1
    done = delivered(snapshot, group) * RIBBON / total
    line = Text()
    for at, held in enumerate(cells):
        room = max(total / RIBBON, 1)
        if held:
            under = styles.DONE if at < done else styles.WAITING
            line.append("█" if held >= room / 2 else "▓", f"{styles.PENDING} on {under}")
        elif at + 1 <= done:
            line.append("█", styles.DONE)
        elif at < done:
            line.append(styles.EIGHTHS[max(round(8 * (done - at)), 1)], f"{styles.DONE} on {styles.WAITING}")
        else:
            line.append("█", styles.WAITING)
    return line


def pending_list(
    snapshot: StreamSnapshot, group: StreamGroup, pending: list[PendingEntry], most: int
) -> Table:
    """A line an entry, a column a consumer: the group's list down the side, each consumer's in its own."""
    shown = pending[:most]
    held = Counter(one.consumer for one in pending)
    names = sorted((consumer.name for consumer in group.consumers()), key=lambda name: (-held[name], name))
    columns = sorted(names[:COLUMNS])
    table = Table.grid(padding=(0, 3, 0, 0))
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_row(Text("pending", styles.GREY), names_line(columns), Text("delivered", styles.GREY), Text())
    spans = {name: span(shown, name) for name in columns}
    for row, one in enumerate(shown):
        known = (one.ms, one.seq)
        gone = "" if snapshot.stream.contains(*known) else "  the entry is deleted"
        age = snapshot.now_ms - one.time_ms
        table.add_row(
            Text.assemble((f"{one.ms}", styles.MS), "-", (f"{one.seq}", styles.SEQ)),
            threads(columns, spans, one.consumer, row),
            Text(f"{styles.format_age(age)} ago" if one.consumer else "given back"),
            Text.assemble(
                (times(one.deliveries), styles.LATE if one.deliveries > 1 else styles.GREY),
                (gone, styles.LATE),
            ),
        )
    if len(pending) > most:
        left = len(pending) - most
        table.add_row(Text(f"… {plural(left, 'entry')} more", styles.GREY))
    return table


def names_line(columns: list[bytes]) -> Text:
    """The consumers' names, each in its colour."""
    line = Text()
    for at, name in enumerate(columns):
        line.append(short(name), f"bold {styles.CONSUMERS[at]}")
        line.append("  ")
    return line


def short(name: bytes) -> str:
    """A consumer's name in a column."""
    return styles.truncate(printable(name), NAME_MAX)


def span(shown: list[PendingEntry], name: bytes) -> range:
    """The lines over which a consumer's list runs."""
    own = [row for row, one in enumerate(shown) if one.consumer == name]
    return range(own[0], own[-1] + 1) if own else range(0)


def threads(columns: list[bytes], spans: dict[bytes, range], owner: bytes, row: int) -> Text:
    """The lists of all consumers where they pass this line: a dot for the owner, a line for the others."""
    line = Text()
    for at, name in enumerate(columns):
        mark = "●" if name == owner else "│" if row in spans[name] else " "
        line.append(mark.ljust(len(short(name)) + 2), styles.CONSUMERS[at])
    if owner not in columns:
        line.append("○ " + printable(owner) if owner else "○ unowned", styles.GREY)
    return line


def times(deliveries: int) -> str:
    """How often."""
    return {0: "never", 1: "once", 2: "twice"}.get(deliveries, f"{deliveries:,} times")
