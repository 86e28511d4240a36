"""Draw the replication of a server, one line for its primary or for each replica.

replica of 10.0.0.1:6379   connected   last data 0 s ago
replica of 10.0.0.1:6379   receiving a snapshot ▇▇▇▇▇▇▁▁▁▁▁▁  52 % of 1.2 GiB
replica of 10.0.0.1:6379   no link for 12 s
replica 10.0.0.2:6379      online      1.2 KiB behind   acknowledged 0 s ago
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from headrace.console import styles
from headrace.console.escaping import printable
from headrace.console.replication_stats import PrimaryLink, ReplicaRow, primary_of, replicas_of

BAR_CELLS = 12
BEHIND_BYTES = 1 << 20  # more is shown in colour
LATE_S = 5  # an acknowledgement is due every second
REPLICAS_MAX = 5  # the others are counted


def replication_lines(info: Mapping[str, str]) -> list[Text]:
    """Return a line for the primary and for each replica; empty if the server has neither."""
    primary = primary_of(info)
    lines = [] if primary is None else [primary_line(primary)]
    rows = replicas_of(info)
    lines += [replica_line(row) for row in rows[:REPLICAS_MAX]]
    if len(rows) > REPLICAS_MAX:
        lines.append(Text(f"… {len(rows) - REPLICAS_MAX} replicas more", styles.GREY))
    return lines


def progress_bar(share: float) -> Text:
    """Return a bar for a share from 0 to 1."""
    filled = round(share * BAR_CELLS)
    return Text("▇" * filled, styles.DONE) + Text("▁" * (BAR_CELLS - filled), styles.WAITING)


def primary_line(link: PrimaryLink) -> Text:
    """Return the line about a replica's link to its primary."""
    text = Text("replica of ", styles.GREY)
    text.append(f"{printable(link.address)}   ", "bold")
    if link.snapshot_received_bytes is not None:
        text.append("receiving a snapshot ", styles.PENDING)
        total = link.snapshot_total_bytes or 0
        if total:
            share = min(link.snapshot_received_bytes / total, 1)
            text.append(progress_bar(share))
            text.append(f"  {share:.0%} of {styles.format_size(total)}")
        else:
            text.append(styles.format_size(link.snapshot_received_bytes))
    elif link.is_up:
        text.append("connected", styles.DONE)
        if link.silent_s is not None:
            text.append(f"   last data {link.silent_s} s ago", styles.GREY)
    else:
        since = f" for {styles.format_age(1000 * link.down_s)}" if link.down_s else ""
        text.append(f"no link{since}", styles.ALERT)
    return text


def replica_line(row: ReplicaRow) -> Text:
    """Return the line about one replica."""
    text = Text("replica ", styles.GREY)
    text.append(f"{printable(row.address)}   ", "bold")
    online = row.state == "online"
    text.append(printable(row.state).replace("_", " "), styles.DONE if online else styles.PENDING)
    if online:
        behind = f"   {styles.format_size(row.behind_bytes)} behind"
        text.append(behind, styles.PENDING if row.behind_bytes > BEHIND_BYTES else styles.GREY)
        text.append(f"   acknowledged {row.lag_s} s ago", styles.ALERT if row.lag_s > LATE_S else styles.GREY)
    return text
