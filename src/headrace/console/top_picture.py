"""Draw a frame of `headrace top`: the server and its replication, then each stream with its groups.

    stream / group     entries    per s                  memory  lag  pending  oldest
    orders             471,210   12,410 ▁▂▅▇▇▇▆▇       13.1 MiB
      billing                    12,398             3 consumers   12      310   4.2 s

Rates are computed from two readings. An unknown value is a dash, never 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from headrace.console import styles
from headrace.console.columns import GAP, columns_that_fit
from headrace.console.escaping import printable
from headrace.console.replication_picture import progress_bar, replication_lines
from headrace.console.rich_text import line
from headrace.console.server_stats import GroupStats, ServerStats, StreamStats, running_snapshot
from headrace.plurals import plural

RATES_KEPT = 8  # readings in the line of blocks
SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█"
DASH = "-"
LATE_MS = 60_000  # older pending entries are shown in red
SORT_ORDERS = ("rate", "length", "lag", "memory", "name")
NAME_MAX = 36
TITLES = ("stream / group", "entries", "per s", "", "memory", "in files", "lag", "pending", "oldest")
IN_FILES_COLUMN = TITLES.index("in files")  # shown only if there is something
DROP_ORDER = (
    3,
    IN_FILES_COLUMN,
    4,
    8,
    2,
    7,
    6,
    1,
)  # in the order in which a narrow console leaves columns out

RULE_COUNTERS = (
    ("rules_removed_entries", "removed"),
    ("rules_dead_letters", "dead letters"),
    ("rules_rejected_entries", "rejected"),
    ("rules_waiting_entries", "waiting for their key"),
    ("scheduled_entries", "scheduled"),
)

DatabaseKey = tuple[int, bytes]  # of a stream


@dataclass
class StatsHistory:
    """The last two readings of a server's statistics, and the rates computed so far."""

    previous_stats: ServerStats | None = None
    latest_stats: ServerStats | None = None
    command_rates: deque[float] = field(default_factory=lambda: deque(maxlen=RATES_KEPT))
    added_rates: dict[DatabaseKey, deque[float]] = field(default_factory=dict)
    memory_by_stream: dict[DatabaseKey, int] = field(default_factory=dict)

    def add(self, stats: ServerStats) -> None:
        """Add a reading."""
        self.previous_stats, self.latest_stats = self.latest_stats, stats
        commands = self.info_rate("total_commands_processed")
        if commands is not None:
            self.command_rates.append(commands)
        by_key = {(stream.database, stream.key): stream for stream in stats.streams}
        self.added_rates = {
            db_key: self.added_rates.get(db_key, deque(maxlen=RATES_KEPT)) for db_key in by_key
        }
        self.memory_by_stream = {
            db_key: size for db_key, size in self.memory_by_stream.items() if db_key in by_key
        }
        for db_key, stream in by_key.items():
            if stream.memory_bytes is not None:
                self.memory_by_stream[db_key] = stream.memory_bytes
            rate = self.added_rate(stream)
            if rate is not None:
                self.added_rates[db_key].append(rate)

    def per_second(self, before: float | None, now: float | None) -> float | None:
        """Return the rate between two values of a counter; None if one is missing or it was reset."""
        if (
            self.previous_stats is None
            or self.latest_stats is None
            or before is None
            or now is None
            or now < before
        ):
            return None
        seconds = self.latest_stats.read_at - self.previous_stats.read_at
        return (now - before) / seconds if seconds > 0 else None

    def info_rate(self, name: str) -> float | None:
        """Return the rate of a counter of INFO per second; None if it is not known."""
        if self.previous_stats is None or self.latest_stats is None:
            return None
        return self.per_second(self.previous_stats.info_number(name), self.latest_stats.info_number(name))

    def previous_stream_stats(self, stream: StreamStats) -> StreamStats | None:
        """Return the statistics of a stream in the previous reading; None if it was not there."""
        if self.previous_stats is None:
            return None
        same = (
            s for s in self.previous_stats.streams if (s.database, s.key) == (stream.database, stream.key)
        )
        return next(same, None)

    def added_rate(self, stream: StreamStats) -> float | None:
        """Return the entries added per second; None if that is not known."""
        earlier = self.previous_stream_stats(stream)
        return self.per_second(earlier.entries_added, stream.entries_added) if earlier else None

    def group_read_rate(self, stream: StreamStats, group: GroupStats) -> float | None:
        """Return the entries read by the group per second; None if that is not known."""
        earlier = self.previous_stream_stats(stream)
        same = next((g for g in earlier.groups if g.name == group.name), None) if earlier else None
        return self.per_second(same.entries_read, group.entries_read) if same else None


def top_picture(history: StatsHistory, address: str, order: str, lines: int | None) -> RenderableType:
    """Return the frame, with at most `lines` lines of streams and groups."""
    stats = history.latest_stats
    assert stats is not None
    rows: list[list[Text]] = []
    streams = sorted(stats.streams, key=lambda stream: sort_key(history, stream, order))
    left = len(streams) + stats.left_out_streams
    for stream in streams:
        if lines is not None and rows and len(rows) + 1 + len(stream.groups) > lines:
            break
        rows.append(stream_row(history, stream))
        rows += [group_row(history, stream, group) for group in stream.groups]
        left -= 1
    head = [*head_lines(history, stats, address), Text()]
    parts: list[RenderableType] = [*head, TopTable(rows)]
    if not stats.streams:
        parts = [*head, Text("There are no streams.", styles.GREY)]
    if left:
        parts.append(Text(f"… {plural(left, 'stream')} more", styles.GREY))
    return Group(*parts)


class TopTable:
    """The table of streams and groups; a narrow console gets only the most important columns."""

    def __init__(self, rows: list[list[Text]]) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        chosen = self.visible_columns(options.max_width)
        table = Table(box=None, pad_edge=False, header_style=styles.GREY, padding=(0, GAP, 0, 0))
        for column in chosen:
            if column == 0:  # the only column that is cut
                table.add_column(TITLES[0], no_wrap=True, overflow="ellipsis")
            else:
                table.add_column(TITLES[column], justify="right" if TITLES[column] else "left", no_wrap=True)
        for row in self.rows:
            table.add_row(*(row[column] for column in chosen))
        yield table

    def visible_columns(self, width: int) -> list[int]:
        """Return the indices of the columns that fit a console of `width` cells."""
        widths = [
            max(cell_len(title), *(row[number].cell_len for row in self.rows))
            for number, title in enumerate(TITLES)
        ]
        hidden = () if any(row[IN_FILES_COLUMN] for row in self.rows) else (IN_FILES_COLUMN,)
        return columns_that_fit(widths, DROP_ORDER, width, hidden)


def sort_key(history: StatsHistory, stream: StreamStats, order: str) -> tuple[float, int, bytes]:
    """Return the sort key of a stream: the largest value first, then by name."""
    db_key = (stream.database, stream.key)
    rates = history.added_rates.get(db_key)
    values = {
        "rate": sum(rates) / len(rates) if rates else 0,
        "length": stream.length,
        "lag": max((group.lag or 0 for group in stream.groups), default=0),
        "memory": history.memory_by_stream.get(db_key, 0),
        "name": 0,
    }
    return -values[order], stream.database, stream.key


def head_lines(history: StatsHistory, stats: ServerStats, address: str) -> list[Text]:
    """Return the lines about the server: its snapshot, replication, cold entries, rules and losses."""
    return [
        server_lines(history, stats, address),
        *snapshot_lines(stats.info),
        *replication_lines(stats.info),
        *cold_lines(stats),
        *rule_lines(stats.info),
        *loss_lines(stats),
    ]


def cold_lines(stats: ServerStats) -> list[Text]:
    """Return the line about entries in files, if there are any or if moving them there failed."""
    entries, error = stats.info_number("cold_entries"), stats.info.get("cold_last_error", "")
    if not entries and not error:
        return []
    text = Text("in files", "bold")
    text.append(f"   {plural(int(entries or 0), 'entry')}")
    text.append(f" of {styles.format_size(stats.info_number('cold_bytes') or 0)} of memory", styles.GREY)
    files, stored = int(stats.info_number("cold_files") or 0), stats.info_number("cold_stored_bytes") or 0
    text.append(f"   {plural(files, 'file')} of {styles.format_size(stored)}", styles.GREY)
    hits, misses = stats.info_number("cold_cache_hits") or 0, stats.info_number("cold_cache_misses") or 0
    if hits + misses:
        text.append(f"   {hits / (hits + misses):.0%}")
        text.append(" of reads from the cache", styles.GREY)
    if error:
        text.append(f"   no others can be moved: {printable(error)}", styles.ALERT)
    return [text]


def rule_lines(info: Mapping[str, str]) -> list[Text]:
    """Return the line about what rules have done, if there are any."""
    if "rules_streams" not in info:
        return []
    text = Text("rules", "bold")
    text.append(f" of {plural(int(info['rules_streams']), 'stream')}", styles.GREY)
    for name, what in RULE_COUNTERS:
        value = int(info.get(name, "0"))
        if value:
            text.append(f"   {value:,}")
            text.append(f" {what}", styles.GREY)
    return [text]


def loss_lines(stats: ServerStats) -> list[Text]:
    """Return the line about entries that groups have lost, if there are any."""
    groups = [group for stream in stats.streams for group in stream.groups]
    losers = [group for group in groups if group.lost_unread or group.lost_pending]
    if not losers:
        return []
    text = Text("lost", "bold")
    text.append(f" by {plural(len(losers), 'group')}", styles.GREY)
    for count, what in (
        (sum(group.lost_unread for group in losers), "unread"),
        (sum(group.lost_pending for group in losers), "pending"),
    ):
        if count:
            text.append(f"   {count:,}", styles.ALERT)
            text.append(f" {what}", styles.GREY)
    return [text]


def snapshot_lines(info: Mapping[str, str]) -> list[Text]:
    """Return the line about a snapshot or rewrite that is being written, if there is one."""
    running = running_snapshot(info)
    if running is None:
        return []
    text = Text(f"{running.job_name} ", styles.PENDING)
    text.append(progress_bar(running.fraction_done))
    text.append(f"  {running.fraction_done:.0%}")
    return [text]


def server_lines(history: StatsHistory, stats: ServerStats, address: str) -> Text:
    """Return the lines about the whole server."""
    info = stats.info
    program = "headrace" if "headrace_version" in info else "valkey" if "valkey_version" in info else "redis"
    version = info.get(f"{program}_version", info.get("redis_version", ""))
    text = line((f"{program} {version}", "bold"), (f" at {address}", styles.GREY))
    uptime = stats.info_number("uptime_in_seconds")
    if uptime is not None:
        text.append(f", up {styles.format_age(uptime * 1000)}", styles.GREY)
    text.append("\n")
    rate = history.info_rate("total_commands_processed")
    shown = [("commands/s", rate_text(rate)), ("in", byte_rate(history, "total_net_input_bytes"))]
    shown += [("out", byte_rate(history, "total_net_output_bytes"))]
    shown += [(name, info.get(f"{name}_clients", DASH)) for name in ("connected", "blocked")]
    memory, limit = stats.info_number("used_memory"), stats.info_number("maxmemory")
    used = styles.format_size(memory) if memory else DASH
    shown.append(("memory", used + (f" of {styles.format_size(limit)}" if limit else "")))
    unaccounted = unaccounted_bytes(stats)
    if unaccounted > 0:
        shown.append(("not accounted", styles.format_size(unaccounted)))
    for number, (name, value) in enumerate(shown):
        text.append("   " if number else "")
        text.append(printable(value), "bold")
        text.append(f" {name}", styles.GREY)
        if number == 0:
            text.append(f" {sparkline(history.command_rates)}", styles.DONE)
    return text


def unaccounted_bytes(stats: ServerStats) -> int:
    """Return the resident bytes beyond those of the data and of the program at its start; 0 if unknown."""
    resident, used = stats.info_number("used_memory_rss"), stats.info_number("used_memory")
    if resident is None or used is None:
        return 0
    return max(int(resident - (stats.info_number("used_memory_rss_startup") or 0) - used), 0)


def byte_rate(history: StatsHistory, name: str) -> str:
    """Return the rate of a counter of bytes as text."""
    rate = history.info_rate(name)
    return DASH if rate is None else f"{styles.format_size(rate)}/s"


def rate_text(rate: float | None) -> str:
    """Return a rate as text."""
    return DASH if rate is None else f"{rate:,.0f}"


def sparkline(values: deque[float]) -> str:
    """Return values as a line of blocks, scaled to the largest one."""
    largest = max(values, default=0)
    if largest <= 0:
        return ""
    return "".join(SPARKLINE_BLOCKS[min(int(8 * value / largest), 7)] for value in values)


def stream_row(history: StatsHistory, stream: StreamStats) -> list[Text]:
    """Return the cells of a stream's line, one for each of TITLES."""
    db_key = (stream.database, stream.key)
    name = Text(styles.truncate(printable(stream.key), NAME_MAX), "bold")
    if stream.database:
        name.append(f"  db{stream.database}", styles.GREY)
    memory = history.memory_by_stream.get(db_key)
    return [
        name,
        Text(f"{stream.length:,}", "bold"),
        Text(rate_text(history.added_rate(stream)), styles.MS),
        Text(sparkline(history.added_rates[db_key]), styles.MS),
        Text(DASH if memory is None else styles.format_size(memory)),
        Text(
            styles.format_cold_entries(stream.cold_entries, stream.cold_bytes) if stream.cold_entries else ""
        ),
        *(Text() for _ in ("lag", "pending", "oldest")),
    ]


def group_row(history: StatsHistory, stream: StreamStats, group: GroupStats) -> list[Text]:
    """Return the cells of a group's line, one for each of TITLES."""
    lag = DASH if group.lag is None else f"{group.lag:,}"
    share = min((group.lag or 0) / max(stream.length, 1), 1)
    oldest = group.oldest_pending_idle_ms
    late = oldest is not None and oldest > LATE_MS
    return [
        Text(f"  {styles.truncate(printable(group.name), NAME_MAX - 2)}", styles.SEQ),
        Text(),
        Text(rate_text(history.group_read_rate(stream, group)), styles.DONE),
        Text(),
        Text(plural(group.consumer_count, "consumer"), styles.GREY),
        Text(),
        Text(lag, styles.ALERT if share > 0.5 else styles.PENDING if group.lag else styles.GREY),
        Text(f"{group.pending:,}", styles.PENDING if group.pending else styles.GREY),
        Text(DASH if oldest is None else styles.format_age(oldest), styles.ALERT if late else styles.GREY),
    ]
