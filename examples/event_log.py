"""An event log with two independent readers, which continue at their positions after a restart.

python examples/event_log.py

Bookings of accounts are added to one stream on disk, the only source of truth. Two independent readers store
their positions in two ways:

    ledger    stores balances in SQLite, and in the same transaction the ID of the last booking they include:
              each booking is counted exactly once, also after a crash
    alerts    is a consumer group, whose position is in the stream: entries that were not acknowledged before
              a crash are delivered again

The balance of ann at noon of the first day needs no reader: it is a slice of the log by time.
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
    """The value of an entry; its time is in the entry's ID."""

    account: str
    cents: int  # negative: a withdrawal


def open_log(database: Database) -> Stream[Booking]:
    """Return the stream of bookings."""
    return database.stream("bookings", codec=Booking)


def add_bookings(log: Stream[Booking], midnight: datetime) -> None:
    """Add a booking for every half hour of a day, with the ID of its time."""
    for n in range(48):
        cents = -900_00 if n == 31 else (n % 7) * 40_00 - 75_00
        log.add(Booking(NAMES[n % 3], cents), id=StreamID.at(midnight + n * timedelta(minutes=30)))


def update_ledger(log: Stream[Booking], tables: sqlite3.Connection) -> int:
    """Update the balances; return the number of new bookings."""
    tables.executescript(TABLES)
    position = tables.execute("SELECT id FROM position").fetchone()
    new = list(log.range(start=StreamID.parse(position[0]).next() if position else None))
    with tables:  # a transaction
        for entry in new:
            tables.execute(
                "INSERT INTO balances VALUES (?, ?) ON CONFLICT DO UPDATE SET cents = cents + excluded.cents",
                (entry.value.account, entry.value.cents),
            )
        if new:
            tables.execute("DELETE FROM position")
            tables.execute("INSERT INTO position VALUES (?)", (str(new[-1].id),))
    return len(new)


def read_alerts(log: Stream[Booking]) -> list[str]:
    """Return the large withdrawals among the bookings that the group has not acknowledged yet."""
    return [
        f"{entry.id.datetime:%a %H:%M}  {entry.value.account} takes {-entry.value.cents / 100:.2f}"
        for entry in log.group("alerts").consumer("desk", block=0)
        if entry.value.cents <= -LARGE
    ]


def balance_at(log: Stream[Booking], account: str, time: datetime) -> int:
    """Return the balance of an account at a time, in cents."""
    return sum(entry.value.cents for entry in log[:time] if entry.value.account == account)


def main(folder: Path) -> list[list[str]]:
    """Run two days with a restart in between; return a row for each."""
    monday = datetime(2026, 3, 2, tzinfo=UTC)
    rows = []
    for day in (monday, monday + timedelta(days=1)):
        with (
            headrace.open(folder / "log") as database,
            closing(sqlite3.connect(folder / "ledger.db")) as tables,
        ):
            log = open_log(database)
            add_bookings(log, day)
            counted = update_ledger(log, tables)
            alerts = read_alerts(log)
            balances = dict(tables.execute("SELECT account, cents FROM balances ORDER BY account"))
            rows.append(
                [
                    f"{day:%A}",
                    str(len(log)),
                    str(counted),
                    ", ".join(f"{name} {cents / 100:.2f}" for name, cents in balances.items()),
                    "; ".join(alerts),
                ]
            )
            for account, cents in balances.items():  # both agree
                assert cents == balance_at(log, account, day + timedelta(days=1))
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
            print(f"ann on Monday at noon: {balance_at(open_log(database), 'ann', noon) / 100:.2f}")
