"""A stream many times larger than the limit of its server, which is killed every two minutes.

    python -m benchmarks.cold_life [--seconds 3600] [--limit 16mb] [--kill-every 120] [--note 100]

A writer numbers its entries, and gives each a note of random letters. Four groups read them from the start
and acknowledge each; each must see every number once, in order, except that entries which were not
acknowledged before a kill come again. The log is synced before each reply. Every fourth kill happens while
the log is being rewritten. At the end the numbers in the stream are compared with those that were
acknowledged to the writer.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rich.console import Console

from benchmarks.servers import PAGE_BYTES, free_port

STREAM = "orders"
GROUPS = 4
BATCH = 200
STALLED_S = 120  # without an entry for any group, at the end
LOST = (redis.ConnectionError, redis.TimeoutError)


class Life:
    """The server, which is started again after each kill, and what its clients found."""

    def __init__(self, folder: str, limit: str, note: int) -> None:
        self.note = note  # characters in the note of an entry
        self.port = free_port()
        self.log = Path(folder) / "server.log"
        options = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", folder]
        options += ["--stream-hot-memory", limit, "--cold-cache-memory", limit]
        self.command = [sys.executable, "-m", "headrace", "serve", "--port", str(self.port), *options]
        self.process = self._start()
        self.is_over = False
        self.written = 0  # the last number that was acknowledged to the writer
        self.read = [0] * GROUPS  # the last number of each group
        self.again = 0  # entries that came again after a kill
        self.faults: list[str] = []

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, stdout=log, stderr=log)

    def client(self) -> redis.Redis:
        """Return a client once the server has loaded its files."""
        never = Retry(NoBackoff(), 0)  # a repeated XREADGROUP would pass the entries of the lost reply
        client = redis.Redis(port=self.port, socket_timeout=60, retry=never)
        while not self.is_over:
            try:
                client.ping()
                break
            except (*LOST, redis.BusyLoadingError):
                time.sleep(0.05)
        return client

    def kill(self) -> float:
        """Kill the server and start it again; return the seconds until it replies."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        started = time.monotonic()
        self.process = self._start()
        self.client().close()
        return time.monotonic() - started

    def resident_mb(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE_BYTES / 1e6

    def fail(self, what: str) -> None:
        """Note what went wrong first, and end."""
        if not self.is_over:
            self.faults.append(what)
        self.is_over = True

    # The clients, each in a thread.

    def write(self) -> None:
        """Add numbers; after a kill go on after the last one that is in the stream."""
        client, choose = self.client(), random.Random(1)
        while not self.is_over:
            try:
                found = client.xrevrange(STREAM, count=1)
                last = int(found[0][1][b"n"]) if found else 0
                if last < self.written:
                    self.fail(f"{self.written} was acknowledged, but the last entry is {last}")
                while not self.is_over:
                    pipe = client.pipeline(transaction=False)
                    for number in range(last + 1, last + 1 + BATCH):
                        note = choose.randbytes(self.note // 2).hex()
                        pipe.xadd(STREAM, {"n": number, "note": note})
                    pipe.execute()
                    last = self.written = last + BATCH
            except LOST:
                client = self.client()

    def follow(self, number: int) -> None:
        """Read as a group: first what is pending, which may have come before, then what is new."""
        client, group = self.client(), f"group:{number}"
        while not self.is_over:
            try:
                while self._read(client, group, number, "0"):
                    pass
                while not self.is_over:
                    if not self._read(client, group, number, ">"):
                        time.sleep(0.01)
            except LOST:
                client = self.client()

    def _read(self, client: redis.Redis, group: str, number: int, start: str) -> bool:
        found = client.xreadgroup(group, "ann", {STREAM: start}, count=BATCH)
        entries = found[0][1] if found else []
        for _, fields in entries:
            seen = int(fields[b"n"])
            if seen == self.read[number] + 1:
                self.read[number] = seen
            elif start == "0" and seen <= self.read[number]:
                self.again += 1
            else:
                self.fail(f"{group} got {seen} after {self.read[number]}")
        if entries:
            client.xack(STREAM, group, *[entry for entry, _ in entries])
        return bool(entries)


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Start a thread that is ended with the process."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def run(life: Life, seconds: float, kill_every: float, console: Console) -> None:
    """Let the clients work, and kill the server now and then."""
    admin = life.client()
    for number in range(GROUPS):
        admin.xgroup_create(STREAM, f"group:{number}", "0", mkstream=True)
    threads = [in_thread(life.write)]
    threads += [in_thread(lambda number=number: life.follow(number)) for number in range(GROUPS)]
    end, kills = time.monotonic() + seconds, 0
    while time.monotonic() < end and not life.is_over:
        time.sleep(min(kill_every, max(end - time.monotonic(), 0)))
        memory = admin.info("memory")
        kills += 1
        if kills % 4 in (0, 2):
            with contextlib.suppress(redis.ResponseError):  # one is running
                admin.bgrewriteaof()
            if kills % 4 == 2:
                time.sleep(5)  # it is complete
        resident = life.resident_mb()
        took = life.kill()
        console.print(
            f"{kills} kills: {life.written:,} written, read {min(life.read):,} to {max(life.read):,}, "
            f"{life.again:,} again; {memory['cold_entries']:,} cold entries of "
            f"{memory['cold_bytes'] / 1e6:,.0f} MB, dataset {memory['used_memory_dataset'] / 1e6:.0f} MB, "
            f"resident {resident:.0f} MB; up again in {took:.2f} s"
        )
        admin = life.client()
    writer, *readers = threads
    goal, before, deadline = life.written, 0, time.monotonic() + STALLED_S
    while min(life.read) < goal and time.monotonic() < deadline and not life.is_over:
        time.sleep(0.2)
        if sum(life.read) > before:
            before, deadline = sum(life.read), time.monotonic() + STALLED_S
    life.is_over = True
    for thread in (writer, *readers):
        thread.join(60)
    if min(life.read) < goal:
        life.faults.append(f"a group read {min(life.read):,} of {goal:,} entries")
    if (length := admin.xlen(STREAM)) < life.written:
        life.faults.append(f"{life.written:,} were acknowledged, but the stream has {length:,} entries")


def main() -> None:
    """Print a line for each kill, and what went wrong; the exit code is 1 then."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--limit", default="16mb")
    parser.add_argument("--kill-every", type=float, default=120)
    parser.add_argument("--note", type=int, default=100)
    arguments = parser.parse_args()
    console = Console(width=200)
    with tempfile.TemporaryDirectory() as folder:
        life = Life(folder, arguments.limit, arguments.note)
        try:
            run(life, arguments.seconds, arguments.kill_every, console)
        finally:
            os.kill(life.process.pid, signal.SIGTERM)
            life.process.wait(60)
        if life.faults:
            console.print(life.log.read_text()[-3000:])
    console.print("\n".join(life.faults) or "nothing was lost, doubled or reordered")
    sys.exit(bool(life.faults))


if __name__ == "__main__":
    main()
