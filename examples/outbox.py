"""An outbox: an order and its message are one transaction, and the message is added exactly once.

python examples/outbox.py

The shop's tables are in SQLite. A program that commits an order and then adds it to a stream loses the
message if it crashes in between. A program that adds first announces orders that are rolled back. So the
message is a row of the same transaction, and a relay copies rows to the stream. Here the relay crashes at
random, even after an entry is added and before its row is deleted. The next run adds the row again with the
same request ID, and the stream returns the ID of the existing entry. It remembers request IDs for a day
(`stream_idmp_duration`); after a longer outage, compare the first row with the last entry.
"""

from __future__ import annotations

import random
import sqlite3
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

import headrace

ORDERS = 100
A_DAY_S = 86_400
TABLES = """
    CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, count INTEGER);
    CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT, count INTEGER);
"""


class Killed(Exception):
    """Simulates a SIGKILL at this point."""


def place_order(shop: sqlite3.Connection, item: str, count: int) -> None:
    """Insert both rows or none: `with` commits, an exception rolls back."""
    with shop:
        shop.execute("INSERT INTO orders (item, count) VALUES (?, ?)", (item, count))
        shop.execute("INSERT INTO outbox (item, count) VALUES (?, ?)", (item, count))
        if count < 0:
            raise ValueError(f"the count is negative: {count}")


def relay(shop: sqlite3.Connection, orders: headrace.Stream[Any], chance: random.Random) -> int:
    """Copy every row of the outbox to the stream; return the number of adds."""
    added = 0
    rows = shop.execute("SELECT id, item, count FROM outbox ORDER BY id").fetchall()
    for row, item, count in rows:
        orders.add({"item": item, "count": count}, idempotency=("shop", str(row)))
        added += 1
        if chance.random() < 0.1:
            raise Killed(added)
        with shop:
            shop.execute("DELETE FROM outbox WHERE id = ?", (row,))
    return added


def main(folder: Path) -> dict[str, int]:
    """Run shop and relay in a folder; return counts of what happened."""
    chance = random.Random(5)
    shop = sqlite3.connect(folder / "shop.db")
    shop.execute("PRAGMA journal_mode = WAL")
    shop.executescript(TABLES)
    rolled_back = crashes = added = 0
    for _ in range(ORDERS):
        try:
            place_order(shop, chance.choice(["pear", "plum", "fig"]), chance.randint(-1, 9))
        except ValueError:
            rolled_back += 1

    done = False
    while not done:
        # Each run of the relay opens the stream again.
        with headrace.open(folder / "stream", stream_idmp_duration=A_DAY_S) as db:
            try:
                added += relay(shop, db.stream("orders"), chance)
                done = True
            except Killed as killed:
                crashes += 1
                added += killed.args[0]

    with headrace.open(folder / "stream") as db:
        entries = len(db.stream("orders"))
    (kept,) = shop.execute("SELECT count(*) FROM orders").fetchone()
    shop.close()
    return {
        "orders kept": kept,
        "orders rolled back": rolled_back,
        "crashes of the relay": crashes,
        "adds by the relay": added,
        "entries in the stream": entries,
    }


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        counts = main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
    table = Table("", "", show_header=False, title="Each order is in the stream once")
    for what, number in counts.items():
        table.add_row(what, str(number))
    Console().print(table)
