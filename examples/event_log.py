"""An event log with two independent readers; each goes on where it was when the program starts again.

python examples/event_log.py

What happens to accounts is added to one stream on disk, and nothing else is the truth. Two readers, at their
own pace and without knowing of each other, remember in two ways how far they have come:

    ledger    keeps balances in SQLite, and in the same transaction the id of the last booking they contain:
              a booking is counted exactly once, whenever the program dies
    alerts    has a consumer group, which the log itself keeps: what it has acknowledged is behind it, and
              what it had begun when the program died comes again

A third question, what ann had at noon of the first day, needs no reader: it is a slice of the log by time.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

import headrace
from headrace import Database, Stream, StreamID

NAMES = ("ann", "bob", "cyn")
LARGE = 500_00
TABLES = """
    CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, cents INTEGER);
    CREATE TABLE IF NOT EXISTS position (id TEXT);
"""


@dataclass
class Booking:
    """What an entry says; when it was is in the entry's id."""

    account: str
    cents: int  # below zero: a withdrawal


def open_log(database: Database) -> Stream[Booking]:
    return database.stream("bookings", codec=Booking)


def a_day_at_the_bank(log: Stream[Booking], morning: datetime) -> None:
    """A booking every half hour, each with the id of its time."""
    for n in range(48):
        cents = -900_00 if n == 31 else (n % 7) * 40_00 - 75_00
        log.add(Booking(NAMES[n % 3], cents), id=StreamID.at(morning + n * timedelta(minutes=30)))


def ledger(log: Stream[Booking], tables: sqlite3.Connection) -> int:
    """Bring the balances up to date; how many bookings were new to them."""
    tables.executescript(TABLES)
    position = tables.execute("SELECT id FROM position").fetchone()
    new = list(log.range(start=StreamID.parse(position[0]).next() if position else None))
    with tables:  # all of it, or nothing
        for entry in new:
            tables.execute(
                "INSERT INTO balances VALUES (?, ?) ON CONFLICT DO UPDATE SET cents = cents + excluded.cents",
                (entry.value.account, entry.value.cents),
            )
        if new:
            tables.execute("DELETE FROM position")
            tables.execute("INSERT INTO position VALUES (?)", (str(new[-1].id),))
    return len(new)


def alerts(log: Stream[Booking]) -> list[str]:
    """Large withdrawals among the bookings that this reader has not acknowledged yet."""
    return [
        f"{entry.id.datetime:%a %H:%M}  {entry.value.account} takes {-entry.value.cents / 100:.2f}"
        for entry in log.group("alerts").consumer("desk", block=0)
        if entry.value.cents <= -LARGE
    ]


def held(log: Stream[Booking], account: str, before: datetime) -> int:
    """What the account held at a moment, in cents."""
    return sum(entry.value.cents for entry in log[:before] if entry.value.account == account)


def main(folder: Path) -> list[list[str]]:
    """Two days, the program ending in between; a row for each."""
    monday = datetime(2026, 3, 2, tzinfo=UTC)
    rows = []
    for day in (monday, monday + timedelta(days=1)):
        with (
            headrace.open(folder / "log") as database,
            closing(sqlite3.connect(folder / "ledger.db")) as tables,
        ):
            log = open_log(database)
            a_day_at_the_bank(log, day)
            counted = ledger(log, tables)
            raised = alerts(log)
            balances = dict(tables.execute("SELECT account, cents FROM balances ORDER BY account"))
            rows.append(
                [
                    f"{day:%A}",
                    str(len(log)),
                    str(counted),
                    ", ".join(f"{name} {cents / 100:.2f}" for name, cents in balances.items()),
                    "; ".join(raised),
                ]
            )
            for account, cents in balances.items():  # the two ways to know agree
                assert cents == held(log, account, day + timedelta(days=1))
    return rows


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        table = Table(
            "day", "entries", "new to the ledger", "balances", "alerts", title="One log, two readers"
        )
        for row in main(folder):
            table.add_row(*row)
        Console().print(table)
        with headrace.open(folder / "log") as database:
            noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
            print(f"ann on Monday at noon: {held(open_log(database), 'ann', noon) / 100:.2f}")
