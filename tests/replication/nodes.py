"""Servers of both kinds as processes, for tests of replication, and a link between them that can be cut."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

import headrace
from support import redis_programs
from support.redis_server import free_port
from support.waiting import answers, wait_until

# Kinds of a primary and its replica: "redis" is the installed one, "redis 8" that of a Python package.
PAIRS_OF_VALKEY = [("valkey", "headrace"), ("headrace", "valkey")]
PAIRS = [("headrace", "headrace"), ("redis", "headrace"), ("headrace", "redis"), *PAIRS_OF_VALKEY]
PAIRS_OF_REDIS_8 = [("redis 8", "headrace"), ("headrace", "redis 8")]
UNOWNED = b"headrace-unowned"  # in Redis 7.0 the consumer of entries without an owner


class Node:
    """A server of one kind with a directory and a port of its own."""

    def __init__(self, kind: str, directory: Path, *options: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.directory = directory
        self.port = free_port()
        self.options = ["--repl-diskless-sync-delay", "0", "--hz", "100", *options]
        self.password = options[options.index("--requirepass") + 1] if "--requirepass" in options else None
        self.client = redis.Redis(port=self.port, password=self.password, socket_timeout=60)
        self.start()

    def start(self) -> None:
        """Start the server on its directory, and wait until it answers."""
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory), *self.options]
        program = [sys.executable, "-m", "headrace", "serve"]
        if self.kind != "headrace":
            program = [redis_programs.redis_program(self.kind), "--save", ""]
        here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
        with (self.directory / "log.txt").open("ab") as log:
            self.process = subprocess.Popen([*program, *words], stdout=log, stderr=log, env=here)
        wait_until(lambda: answers(self.client), f"{self.kind}: {self.log()[-2000:]}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def log(self) -> str:
        return (self.directory / "log.txt").read_text(errors="replace")

    def follow(self, port: int) -> None:
        self.client.execute_command("REPLICAOF", "127.0.0.1", port)

    def promote(self) -> None:
        self.client.execute_command("REPLICAOF", "NO", "ONE")

    def replication(self) -> dict[str, Any]:
        return self.client.info("replication")

    def syncs(self) -> tuple[int, int]:
        """Return how many full and partial synchronisations it has served."""
        stats = self.client.info("stats")
        return stats["sync_full"], stats["sync_partial_ok"]

    def wait_for_link(self) -> None:
        """Wait until this replica follows its primary."""
        wait_until(lambda: self.replication().get("master_link_status") == "up", self.log()[-1500:])

    def wait_for(self, primary: Node) -> None:
        """Wait until this replica has everything that its primary has."""

        def has_everything() -> bool:
            ours, theirs = self.replication(), primary.replication()
            return (
                ours.get("master_link_status") == "up"
                and ours["master_repl_offset"] == theirs["master_repl_offset"]
                and ours["master_replid"] == theirs["master_replid"]
            )

        wait_until(has_everything, f"{primary.log()[-1500:]} ——— {self.log()[-1500:]}")

    def state(self, *, exact: bool = False, busy_only: bool = False) -> dict[tuple[int, bytes], Any]:
        """Return all data: key by key what clients see, or `exact` payloads of DUMP.

        With busy_only, consumers without pending entries and delivery counts are left out. Redis does not
        send its replicas a consumer that an empty XREADGROUP creates, nor counts of entries read again.
        """
        found: dict[tuple[int, bytes], Any] = {}
        for database in range(3):
            with redis.Redis(port=self.port, password=self.password, db=database) as client:
                for key in client.scan_iter(count=1000):
                    value = client.dump(key) if exact else self._value(client, key, busy_only)
                    found[database, key] = (client.pexpiretime(key), value)
        return found

    def _value(self, client: redis.Redis, key: bytes, busy_only: bool) -> Any:
        kind = client.type(key)
        if kind != b"stream":
            return client.get(key) if kind == b"string" else None
        with Raw(self.port, client.connection_pool.connection_kwargs["db"], self.password) as raw:
            rows = raw.request("XINFO", "STREAM", key, "FULL", "COUNT", 0)
        info = pairs(rows)
        names = (b"length", b"last-generated-id", b"max-deleted-entry-id", b"entries-added", b"entries")
        return [info[name] for name in names], sorted(
            group_state(pairs(row), busy_only) for row in info[b"groups"]
        )


class Raw(contextlib.AbstractContextManager["Raw"]):
    """A connection whose replies are not interpreted; errors are returned."""

    def __init__(self, port: int, database: int = 0, password: str | None = None) -> None:
        self._connection = redis.Connection(
            port=port, protocol=2, db=database, password=password, socket_timeout=60
        )

    def request(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        try:
            return self._connection.read_response(disable_decoding=True)
        except redis.ResponseError as error:
            return error

    def __exit__(self, *error: object) -> None:
        self._connection.disconnect()


def pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def group_state(group: dict[bytes, Any], busy_only: bool) -> Any:
    """Return what every server shows of a group, times of consumers aside."""
    pending = [[row[0], row[1] or UNOWNED, 0 if busy_only else row[3]] for row in group[b"pending"]]
    rows = [pairs(row) for row in group[b"consumers"]]
    consumers = sorted({row[b"name"] for row in rows if row[b"pel-count"] or not busy_only} - {UNOWNED})
    return group[b"name"], group[b"last-delivered-id"], pending, consumers


@contextlib.contextmanager
def nodes(directory: Path, *kinds: str, options: tuple[str, ...] = ()) -> Iterator[list[Node]]:
    """Servers of these kinds, ended afterwards."""
    with contextlib.ExitStack() as stack:
        made = []
        for number, kind in enumerate(kinds):
            made.append(Node(kind, directory / f"{number}-{kind}", *options))
            stack.callback(made[-1].stop)
        yield made
