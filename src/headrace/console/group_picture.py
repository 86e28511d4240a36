"""Draw the groups of a stream: the position of each, and its pending list by consumer.

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
from headrace.errors import IdsExhausted
from headrace.plurals import plural
from headrace.streams.group import Group as StreamGroup
from headrace.streams.rules import Rules
from headrace.structures.stream_id import StreamId

RIBBON_CELLS = 64
CONSUMER_COLUMNS_MAX = len(styles.CONSUMER_COLOURS)  # consumers with a column of their own
NAME_MAX = 12
EXACT_NODES_MAX = 200  # with more nodes the positions on the ribbon are approximate


def group_picture(snapshot: StreamSnapshot, limit: int) -> RenderableType:
    """Return a drawing of all groups, with at most `limit` entries of each pending list."""
    groups = snapshot.stream.groups()
    if not groups:
        return Text("The stream has no groups.", styles.GREY)
    parts = [part for group in groups for part in (Text(), *group_parts(snapshot, group, limit))]
    return Group(legend(), *parts)


def legend() -> Text:
    """Return the meaning of the colours of a ribbon."""
    return Text.assemble(
        ("██", styles.DONE),
        (" acknowledged or passed over  ", styles.GREY),
        ("██", styles.PENDING),
        (" pending  ", styles.GREY),
        ("██", styles.WAITING),
        (" not delivered yet;  the whole ribbon is the stream", styles.GREY),
    )


def group_parts(snapshot: StreamSnapshot, group: StreamGroup, limit: int) -> Iterator[RenderableType]:
    """Return the heading of a group, its ribbon and its pending list."""
    pending = list(pending_entries(group))
    name = Text.assemble((printable(group.name), "bold"))
    name.append(f"   last delivered {group.last_ms}-{group.last_seq}", styles.GREY)
    undelivered = snapshot.stream.length - delivered_count(snapshot, group)
    name.append(
        f"   {plural(len(pending), 'entry')} pending",
        styles.PENDING if pending else styles.GREY,
    )
    name.append(f"   {plural(undelivered, 'entry')} not delivered yet", styles.GREY)
    yield name
    if group.rules is not None:
        yield rules_text(group.rules)
    yield ribbon(snapshot, group, pending)
    if pending:
        yield Text()
        yield pending_table(snapshot, group, pending, limit)


def rules_text(rules: Rules) -> Text:
    """Return the rules of a stream or a group in a line."""
    text = Text("rules", styles.GREY)
    for name, value in rules.explicit_values().items():
        text.append(f"   {name} ", styles.GREY)
        text.append(printable(value))
    return text


def delivered_count(snapshot: StreamSnapshot, group: StreamGroup) -> int:
    """Return the number of existing entries up to the group's last delivered ID."""
    try:
        after = StreamId(group.last_ms, group.last_seq).successor()
    except IdsExhausted:
        return snapshot.stream.length
    return snapshot.rank(after.ms, after.seq, True)


def ribbon(snapshot: StreamSnapshot, group: StreamGroup, pending: list[PendingEntry]) -> Text:
    """Return the stream from first to last entry as a line, coloured by what the group did with it."""
    total = max(snapshot.stream.length, 1)
    cells = [0] * RIBBON_CELLS  # number of pending entries in each cell
    exactly = len(snapshot.packed_nodes) <= EXACT_NODES_MAX
    for one in pending:
        rank = snapshot.rank(one.ms, one.seq, exactly)
        cells[min(rank * RIBBON_CELLS // total, RIBBON_CELLS - 1)] += 1
    done = delivered_count(snapshot, group) * RIBBON_CELLS / total
    line = Text()
    for at, count in enumerate(cells):
        entries_per_cell = max(total / RIBBON_CELLS, 1)
        if count:
            background = styles.DONE if at < done else styles.WAITING
            line.append("█" if count >= entries_per_cell / 2 else "▓", f"{styles.PENDING} on {background}")
        elif at + 1 <= done:
            line.append("█", styles.DONE)
        elif at < done:
            line.append(styles.EIGHTHS[max(round(8 * (done - at)), 1)], f"{styles.DONE} on {styles.WAITING}")
        else:
            line.append("█", styles.WAITING)
    return line


def pending_table(
    snapshot: StreamSnapshot, group: StreamGroup, pending: list[PendingEntry], limit: int
) -> Table:
    """Return a table of pending entries: a row per entry, a column per consumer."""
    shown = pending[:limit]
    counts = Counter(one.consumer for one in pending)
    names = sorted((consumer.name for consumer in group.consumers()), key=lambda name: (-counts[name], name))
    columns = sorted(names[:CONSUMER_COLUMNS_MAX])
    table = Table.grid(padding=(0, 3, 0, 0))
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_row(Text("pending", styles.GREY), names_line(columns), Text("delivered", styles.GREY), Text())
    spans = {name: rows_of_consumer(shown, name) for name in columns}
    for row, one in enumerate(shown):
        known = (one.ms, one.seq)
        gone = "" if snapshot.stream.contains(*known) else "  the entry is deleted"
        age = snapshot.now_ms - one.delivery_time_ms
        table.add_row(
            Text.assemble((f"{one.ms}", styles.MS), "-", (f"{one.seq}", styles.SEQ)),
            consumer_marks(columns, spans, one.consumer, row),
            Text(delivered_text(group, one, age)),
            Text.assemble(
                (
                    delivery_count_text(one.delivery_count),
                    styles.ALERT if one.delivery_count > 1 else styles.GREY,
                ),
                (gone, styles.ALERT),
            ),
        )
    if len(pending) > limit:
        table.add_row(Text(f"… {plural(len(pending) - limit, 'entry')} more", styles.GREY))
    return table


def delivered_text(group: StreamGroup, one: PendingEntry, age: int) -> str:
    """Return when an entry was delivered, or why no consumer works on it."""
    if not one.consumer:
        return "given back"
    if group.is_ordered() and (one.delivery_count == 0 or one.delivery_time_ms == 0):
        return "waits for its turn"
    return f"{styles.format_age(age)} ago"


def names_line(columns: list[bytes]) -> Text:
    """Return the names of consumers, each in its colour."""
    line = Text()
    for at, name in enumerate(columns):
        line.append(short_name(name), f"bold {styles.CONSUMER_COLOURS[at]}")
        line.append("  ")
    return line


def short_name(name: bytes) -> str:
    """Return a consumer's name as the title of its column."""
    return styles.truncate(printable(name), NAME_MAX)


def rows_of_consumer(shown: list[PendingEntry], name: bytes) -> range:
    """Return the rows from a consumer's first entry to its last; empty if it has none."""
    own = [row for row, one in enumerate(shown) if one.consumer == name]
    return range(own[0], own[-1] + 1) if own else range(0)


def consumer_marks(columns: list[bytes], spans: dict[bytes, range], owner: bytes, row: int) -> Text:
    """Return the cells of a row: a dot for the owner, a line for consumers with entries above and below."""
    line = Text()
    for at, name in enumerate(columns):
        mark = "●" if name == owner else "│" if row in spans[name] else " "
        line.append(mark.ljust(len(short_name(name)) + 2), styles.CONSUMER_COLOURS[at])
    if owner not in columns:
        line.append("○ " + printable(owner) if owner else "○ unowned", styles.GREY)
    return line


def delivery_count_text(deliveries: int) -> str:
    """Return a number of deliveries in words: never, once, twice, 3 times."""
    return {0: "never", 1: "once", 2: "twice"}.get(deliveries, f"{deliveries:,} times")
