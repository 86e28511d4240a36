"""An App: handlers declared without a database, run on one, ended together by one signal."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import Batch, Delivery
from headrace.errors import CodecError, UsageError
from support.waiting import wait_until

ROOT = Path(__file__).parents[2]


@dataclass
class Order:
    customer: str
    cents: int


def test_run_once_handles_what_is_there_and_what_handlers_add(database: headrace.Database) -> None:
    app = headrace.App()
    billed: list[Order] = []
    mailed: list[int] = []

    @app.handler("bills", group="mailing", batch=10)
    def mail(batch: Batch[Any]) -> None:
        mailed.append(len(batch))

    @app.handler("orders", group="billing", codec=Order, concurrency=2)
    def bill(entry: Delivery[Order]) -> None:
        billed.append(entry.value)
        database.stream("bills").add({"cents": entry.value.cents})

    orders = database.stream("orders", codec=Order)
    orders.add_many([Order("ann", 5), Order("bob", 6)])
    done = app.run_once(database)
    assert (done.handled, done.retried) == (4, 0) and sum(mailed) == 2
    assert sorted(one.customer for one in billed) == ["ann", "bob"]
    orders.add(Order("cyn", 7))
    assert app.run_once(database).handled == 2
    assert app.run_once(database).handled == 0
    assert orders.group("billing").consumers() == []


def test_run_once_runs_async_handlers_too(database: headrace.Database) -> None:
    app = headrace.App()
    seen: list[str] = []

    @app.handler("orders", group="billing", codec="text")
    async def bill(entry: Delivery[dict[str, str]]) -> None:
        await asyncio.sleep(0)
        seen.append(entry.value["n"])

    @app.handler("orders", group="mailing", codec="json")
    def mail(entry: Delivery[Any]) -> None:
        seen.append(entry.value)

    database.stream("orders").add({"n": 1})
    done = app.run_once(database)
    assert (done.handled, done.dead_lettered, seen) == (1, 1, ["1"]), "the entry is not JSON"
    assert database.stream("orders").group("mailing").info().pending == 0
    assert asyncio.run(app.run_once_async(database)).handled == 0


def test_run_continues_until_stop(
    database: headrace.Database, aside: Callable[[Callable[[], object]], Any]
) -> None:
    app = headrace.App()
    seen: list[int] = []

    @app.handler("orders", group="billing", consumer="w")
    def bill(entry: Delivery[Any]) -> None:
        seen.append(int(entry["n"]))

    running = aside(lambda: app.run(database))
    for n in range(3):
        database.stream("orders").add({"n": n})
    wait_until(lambda: len(seen) == 3)
    app.stop()
    running.result()

    async def again() -> None:
        task = asyncio.create_task(app.run_async(database, signals=False))
        await asyncio.to_thread(database.stream("orders").add, {"n": 3})
        while len(seen) < 4:
            await asyncio.sleep(0.01)
        app.stop()
        await task

    asyncio.run(again())
    assert seen == [0, 1, 2, 3]


def test_declaring_needs_no_server_and_finds_mistakes_at_once() -> None:
    app = headrace.App()
    app.handler("orders", group="billing", consumer="w", max_deliveries=3)(print)
    for options, error in (
        ({"consumer": "w", "max_deliveries": 3}, "consumer 'w' has a handler already"),
        ({"consumer": b"w", "max_deliveries": 3}, "consumer 'w' has a handler already"),
        ({"consumer": "v", "max_deliveries": 4}, "different settings"),
        ({"concurency": 4}, "unknown option 'concurency'"),
        ({"batch": 0}, "size of a batch"),
    ):
        with pytest.raises(UsageError, match=error):
            app.handler("orders", group="billing", **options)(print)  # type: ignore[call-overload]
    with pytest.raises(CodecError):
        app.handler("orders", group="billing", codec=5)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="nothing to run"), headrace.open() as db:
        headrace.App().run(db)
    with pytest.raises(UsageError, match=r"^db='redis://x': must be a Database, such as headrace.connect"):
        app.run("redis://x")  # type: ignore[arg-type]
    assert repr(app) == "App(1 handlers)"


def test_names_of_settings_may_be_text_or_bytes() -> None:
    app = headrace.App()
    app.handler("orders", group="billing", consumer="v", dead_letters="graves", ordered_by="customer")(print)
    app.handler(b"orders", group=b"billing", dead_letters=b"graves", ordered_by=b"customer")(print)
    with pytest.raises(UsageError, match="different settings"):
        app.handler("orders", group="billing", dead_letters=b"others", ordered_by="customer")(print)
    again = app.handler(
        "orders", group="billing", consumer=b"v", dead_letters="graves", ordered_by="customer"
    )
    with pytest.raises(UsageError, match="consumer 'v' has a handler already"):
        again(print)
    assert repr(app) == "App(2 handlers)"


SIGNALLED = """
import os, signal, sys, threading, time
import headrace

ends = []

def own(number, frame):
    ends.append("own handler")

signal.signal(signal.SIGTERM, own)
app = headrace.App()

@app.handler("orders", group="one")
{define} one(entry):
    os.kill(os.getpid(), signal.SIGTERM)

@app.handler("orders", group="two", batch=5, batch_seconds=3600)
def two(batch):
    pass

with headrace.open() as db:
    db.stream("orders").add({{"n": 1}})
    beside = db.stream("orders").group("three", start="$")
    beside.handler(lambda entry: None)
    thread = threading.Thread(target=beside.run)
    thread.start()
    app.run(db)
    thread.join(20)
    print(thread.is_alive(), *ends, signal.getsignal(signal.SIGTERM) is own)
"""


@pytest.mark.parametrize("define", ["def", "async def"])
def test_one_signal_ends_the_app_and_all_other_groups(define: str) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SIGNALLED.format(define=define)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "False own handler True\n", done.stderr


GOOD = """
from dataclasses import dataclass
import headrace
from headrace import Batch, Delivery

@dataclass
class Order:
    cents: int

@dataclass
class Invoice:
    total: int

app = headrace.App()
group = headrace.open().stream("orders", codec=Order).group("billing")

@app.handler("orders", group="a", codec=Order, max_deliveries=3)
def one(entry: Delivery[Order]) -> None:
    print(entry.value.cents)

@app.handler("orders", group="b", codec=Order, batch=500)
async def many(batch: Batch[Order]) -> None:
    print([value.cents for value in batch.values])

@app.handler("orders", group="c")
def plain(entry: Delivery[dict[bytes, bytes]]) -> None:
    print(entry.value[b"cents"])

@app.handler("orders", group="d", codec="text", batch=3)
def text(batch: Batch[dict[str, str]]) -> None: ...

@group.handler
def of_group(entry: Delivery[Order]) -> None: ...

@group.handler(batch=5)
def batch_of_group(batch: Batch[Order]) -> None: ...

for batch in group.consumer().batches():
    print(batch[0].value.cents)
"""
BAD = {
    "def one(entry: Delivery[Order])": "def one(entry: Delivery[Invoice])",
    "def many(batch: Batch[Order])": "def many(batch: Delivery[Order])",
    "def plain(entry: Delivery[dict[bytes, bytes]])": "def plain(entry: Delivery[dict[str, str]])",
    "def text(batch: Batch[dict[str, str]])": "def text(batch: Batch[Order])",
    "def of_group(entry: Delivery[Order])": "def of_group(entry: Delivery[Invoice])",
    "def batch_of_group(batch: Batch[Order])": "def batch_of_group(batch: Batch[Invoice])",
    "batch[0].value.cents": "batch[0].value.total",
    "max_deliveries=3": 'max_deliveries="3"',
}


def test_mypy_rejects_handlers_of_another_type(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    files = {"good": GOOD}
    for n, (right, wrong) in enumerate(BAD.items()):
        assert right in GOOD
        files[f"bad_{n}"] = GOOD.replace(right, wrong)
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT / 'src'}:{ROOT / 'typings'}\n")
    shown, failed, _ = api.run(
        ["--config-file", str(config), "--cache-dir", str(ROOT / ".mypy_cache" / "tests")]
        + [str(tmp_path / f"{name}.py") for name in files]
    )
    assert not failed
    wrong = {Path(line.partition(":")[0]).stem for line in shown.splitlines() if ": error:" in line}
    assert wrong == files.keys() - {"good"}, shown
