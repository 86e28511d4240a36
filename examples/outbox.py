"""An outbox: an order and the message about it are one transaction; the message arrives exactly once.

python examples/outbox.py

The shop's tables are in SQLite. Whoever commits an order and then adds it to a stream loses the message when
the process dies in between; whoever adds first announces orders that are rolled back. So the message is a
row of the same transaction, and a relay carries rows to the stream. Here the relay dies at random, in its
worst moment too: the entry is added, its row not yet removed. The next life of the relay adds the row again
under the same request id, and the stream answers with the id of the entry that is already there: for a day,
as it is told here, so a relay that is dead for longer should compare its first row with the last entry.
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
    """Stands for a SIGKILL: what was done so far is done, the rest is not."""


def place_order(shop: sqlite3.Connection, item: str, count: int) -> None:
    """Both rows or none: `with` commits, an exception rolls back."""
    with shop:
        shop.execute("INSERT INTO orders (item, count) VALUES (?, ?)", (item, count))
        shop.execute("INSERT INTO outbox (item, count) VALUES (?, ?)", (item, count))
        if count < 0:
            raise ValueError("nobody orders less than nothing")


def relay(shop: sqlite3.Connection, orders: headrace.Stream[Any], chance: random.Random) -> int:
    """Carries every row of the outbox to the stream; how often it added."""
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
    """The whole story in one folder; what came of it, in figures."""
    chance = random.Random(5)
    shop = sqlite3.connect(folder / "shop.db")
    shop.execute("PRAGMA journal_mode = WAL")
    shop.executescript(TABLES)
    refused = crashes = added = 0
    for _ in range(ORDERS):
        try:
            place_order(shop, chance.choice(["pear", "plum", "fig"]), chance.randint(-1, 9))
        except ValueError:
            refused += 1

    done = False
    while not done:
        # Each life of the relay opens the stream anew.
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
        "orders rolled back": refused,
        "times the relay died": crashes,
        "adds it made": added,
        "entries in the stream": entries,
    }


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        figures = main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
    table = Table("", "", show_header=False, title="Each order once", caption="however often the relay died")
    for what, number in figures.items():
        table.add_row(what, str(number))
    Console().print(table)
