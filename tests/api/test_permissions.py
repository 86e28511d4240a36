"""The table of permissions in docs/library.md: each row has all commands of its calls, and no others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import redis

import headrace
from headrace.errors import AccessDenied, NotReplicated, UsageError

DOCS = Path(__file__).parents[2] / "docs/library.md"
CONNECTING = {"hello", "auth", "client", "select", "ping", "command"}  # sent by each connection
OF_ADMIN = {"acl", "info", "config", "flushall"}  # INFO counts them as well

Calls = Callable[[headrace.Database], object]


def rows() -> dict[str, set[str]]:
    """Return the commands of each row, by the calls that it names."""
    section = DOCS.read_text().partition("### Permissions")[2].partition("\n## ")[0]
    lines = [line.split("|")[1:4] for line in section.splitlines() if line.startswith("| ")]
    return {calls.strip(): set(re.findall(r"\b[A-Z]{3,}\b", words)) for calls, _, words in lines[1:]}


ROWS = rows()


@pytest.fixture
def admin(headrace_url: str) -> Iterator[redis.Redis]:
    """A client that may do everything; afterwards the user `program` is removed."""
    with redis.Redis.from_url(headrace_url, decode_responses=True) as admin:
        admin.flushall()
        yield admin
        admin.acl_deluser("program")


def restricted(admin: redis.Redis, commands: set[str], *keys: str) -> headrace.Database:
    """Connect as a user who may only send these commands, on these keys."""
    rules = ["&headrace:wait", *(f"~{key}" for key in keys), *(f"+{command.lower()}" for command in commands)]
    admin.execute_command("ACL", "SETUSER", "program", "reset", "on", ">right", *rules)
    admin.config_resetstat()
    port = admin.connection_pool.connection_kwargs["port"]
    return headrace.connect(f"redis://program:right@127.0.0.1:{port}")


def commands_sent(admin: redis.Redis) -> set[str]:
    """Return the commands that were run since restricted()."""
    names = {name.removeprefix("cmdstat_").partition("|")[0] for name in admin.info("commandstats")}
    return {name.upper() for name in names - CONNECTING - OF_ADMIN}


def add(db: headrace.Database) -> None:
    orders = db.stream("orders")
    orders.add({"n": 1}, idempotency=("p", "1"))
    assert len(orders.add_many([{"n": 4}, {"n": 5}])) == 2


def add_and_wait(db: headrace.Database) -> None:
    with pytest.raises(NotReplicated) as caught:
        db.stream("orders").add({"n": 1}, wait_replicas=1, timeout=0.01)
    assert len(caught.value.ids) == 1


def add_once_and_wait(db: headrace.Database) -> None:
    with pytest.raises(NotReplicated):
        db.stream("orders").add({"n": 1}, idempotency=("p", "2"), wait_replicas=1, timeout=0.01)


def read(db: headrace.Database) -> None:
    orders = db.stream("orders")
    assert len(list(orders)) == len(list(orders.reverse())) == len(orders) == len(orders.read(after="0")) == 3
    last = orders.last().id
    assert orders.first().id < last
    assert orders.info().length == 3 and orders.groups() == []
    stop = headrace.Stop()
    for entry in orders.follow(after="0", stop=stop):
        if entry.id == last:
            stop.set()


def read_tables(db: headrace.Database) -> None:
    orders = db.stream("orders")
    required = pa.schema([pa.field("n", pa.decimal128(9, 2), nullable=False)])
    assert orders.to_arrow().num_rows == pa.table(orders.arrow_batches(required)).num_rows == 3


def query(db: headrace.Database) -> None:
    required = pa.schema([pa.field("n", pa.decimal128(9, 2), nullable=False)])
    assert db.sql("SELECT n FROM orders").num_rows == 3
    assert db.sql("SELECT n FROM orders", {"orders": required}).num_rows == 3
    with pytest.raises(UsageError, match="there is no stream"):
        db.sql('SELECT n FROM "{orders}:dead"')
    with pytest.raises(AccessDenied):
        db.sql("SELECT n FROM order")


def shrink(db: headrace.Database) -> None:
    orders = db.stream("orders")
    orders.trim(maxlen=2)
    first, last = orders.first().id, orders.last().id
    assert orders.delete(first) == 1
    assert orders.delete(last, references="delete") == 1
    orders.destroy()


def set_rules(db: headrace.Database) -> None:
    db.stream("orders").set_retention(headrace.Retention(max_len=100))
    assert db.stream("orders").rules() == {"MAX-LEN": "100"}


def scan(db: headrace.Database) -> None:
    assert [stream.name for stream in db.streams()] == ["orders"]


def consume(db: headrace.Database) -> None:
    orders = db.stream("orders")
    group = orders.group("billing", lease=1)
    for _ in group.consumer("w1", block=0):
        break
    for entry in group.consumer("w2", block=0):
        entry.retry(after=0) if entry.times_delivered == 1 else entry.ack()
    assert len(list(group.pending())) == group.info().pending
    assert {one.name for one in group.consumers()} == {"w1", "w2"} and len(orders.groups()) == 1
    group.set_position("0")
    assert len(list(group.consumer("w1", block=0))) > 0
    group.remove_consumer("w1")
    group.destroy()


def use_dead_letters(db: headrace.Database) -> None:
    group = db.stream("orders").group("billing", max_deliveries=1)
    for entry in group.consumer("w1", block=0):
        entry.fail("no")
    letters = list(group.dead_letters)
    assert len(letters) == len(group.dead_letters) == 3
    assert group.dead_letters.retry(letters[0].id) == 1
    assert group.dead_letters.delete(letters[1].id) == 1


CALLS: dict[str, Calls] = {
    "`add()`, `add_many()`": add,
    "`wait_replicas`": add_and_wait,
    "`wait_replicas` with `idempotency`": add_once_and_wait,
    "iteration, `range()`, `read()`, `follow()`, `first()`, `last()`, `len()`, `info()`, `groups()`": read,
    "`to_arrow()`, `arrow_batches()`": read_tables,
    "`db.sql()`": query,
    "`trim()`, `delete()`, `destroy()`": shrink,
    "`set_retention()`, `rules()`": set_rules,
    "`db.streams()`": scan,
    "groups, consumers": consume,
    "dead letters": use_dead_letters,
}
# Commands of other rows that the calls need, too.
OF_OTHER_ROWS = {
    add_and_wait: {"XADD"},
    add_once_and_wait: {"XADD"},
    shrink: {"XRANGE", "XREVRANGE"},
    use_dead_letters: ROWS["groups, consumers"],
}


@pytest.mark.parametrize("row", [row for row in ROWS if row != "with Sentinel"])
def test_the_commands_of_a_row_are_enough_and_needed(admin: redis.Redis, row: str) -> None:
    calls = CALLS[row]
    others = OF_OTHER_ROWS.get(calls, set())
    for n in range(3):
        admin.xadd("orders", {"n": n})
    with restricted(admin, ROWS[row] | others, "orders", "{orders}:dead") as db:
        calls(db)
        used = commands_sent(admin)
    assert used - others == ROWS[row] - others and used <= ROWS[row] | others


@pytest.mark.parametrize("missing", ["MULTI", "EXEC"])
def test_a_transaction_that_is_not_permitted_stores_nothing(admin: redis.Redis, missing: str) -> None:
    with restricted(admin, (ROWS["`add()`, `add_many()`"] | {"XLEN"}) - {missing}, "orders") as db:
        orders = db.stream("orders")
        with pytest.raises(AccessDenied, match=missing.lower()):
            orders.add_many([{"n": 1}, {"n": 2}])
        assert len(orders) == 0, "the connection is still in a transaction, or entries were added"
        orders.add({"n": 3})
        admin.execute_command("ACL", "SETUSER", "program", f"+{missing}")
        assert len(orders.add_many([{"n": 1}, {"n": 2}])) == 2 and len(orders) == 3


def test_a_permission_that_is_removed_later_is_reported(admin: redis.Redis) -> None:
    with restricted(admin, {"XADD", "MULTI", "EXEC"}, "orders") as db:
        orders = db.stream("orders")
        orders.add_many([{"n": 1}, {"n": 2}])
        admin.execute_command("ACL", "SETUSER", "program", "-multi")
        with pytest.raises(AccessDenied, match="were executed one by one: allow MULTI and EXEC"):
            orders.add_many([{"n": 3}, {"n": 4}])
        assert admin.xlen("orders") == 4
