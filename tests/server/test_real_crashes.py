"""Real processes, a real disk, SIGKILL: what was acknowledged is there, what was never sent is not."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import headrace
from server.server_process import SECONDS_MAX, Process
from support.redis_server import redis_server
from support.waiting import wait_until

pytestmark = pytest.mark.whole

CLIENTS = 4
GROUP = "g"


@pytest.fixture
def launch(tmp_path: Path) -> Iterator:
    """launch("--appendfsync", "always") starts a server on the test's directory, or on `directory`."""
    started: list[Process] = []

    def run(*arguments: str, directory: Path = tmp_path, preexec_fn=None) -> Process:
        started.append(Process(directory, *arguments, preexec_fn=preexec_fn))
        return started[-1]

    yield run
    for process in started:
        if process.child.poll() is None:
            process.kill()


class Worker:
    """One client that adds, reads and acknowledges, and remembers what it sent and what it was told."""

    def __init__(self, process: Process, number: int) -> None:
        self.client = process.client()
        self.name = f"worker-{number}"
        self.random = random.Random(number)
        self.sent: set[str] = set()  # values of entries
        self.added: dict[str, str] = {}  # value -> ID, acknowledged
        self.acknowledging: set[str] = set()  # IDs of XACKs that were sent
        self.acknowledged: set[str] = set()  # and answered
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self) -> None:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            for n in range(1_000_000):
                self.step(n)

    def step(self, n: int) -> None:
        if self.random.random() < 0.7:
            value = f"{self.name} {n}"
            self.sent.add(value)
            self.added[value] = self.client.xadd("s", {"v": value})
            return
        found = self.client.xreadgroup(GROUP, self.name, {"s": ">"}, count=3)
        ids = [entry for entry, _ in found[0][1]] if found else []
        if ids:
            self.acknowledging |= set(ids)
            assert self.client.xack("s", GROUP, *ids) == len(ids)
            self.acknowledged |= set(ids)


def under_load(process: Process, then) -> list[Worker]:
    """What the workers know after a while of work, and after `then` has ended the server."""
    process.client().xgroup_create("s", GROUP, id="0", mkstream=True)
    workers = [Worker(process, number) for number in range(CLIENTS)]
    wait_until(lambda: all(len(w.added) > 20 and w.acknowledged for w in workers))
    then()
    for worker in workers:
        worker.thread.join(SECONDS_MAX)
        assert not worker.thread.is_alive()
    return workers


def check(client: redis.Redis, workers: list[Worker]) -> None:
    """All that was answered is there; nothing is there that nobody sent."""
    values = {fields["v"]: entry for entry, fields in client.xrange("s")}
    pending = {item["message_id"] for item in client.xpending_range("s", GROUP, "-", "+", 1_000_000)}
    last = client.xinfo_groups("s")[0]["last-delivered-id"]
    for worker in workers:
        assert {v: values.get(v) for v in worker.added} == worker.added
        assert not worker.acknowledged & pending
    assert set(values) <= set().union(*(worker.sent for worker in workers))
    # Delivered and not acknowledged: pending, unless the XACK got through and only its answer did not.
    key = lambda one: tuple(map(int, one.split("-")))  # noqa: E731
    delivered = {entry for entry in values.values() if key(entry) <= key(last)}
    gone = delivered - pending
    assert gone <= set().union(*(worker.acknowledging for worker in workers))


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_killed_under_load(launch, policy: str):
    for _ in range(2):
        process = launch("--appendfsync", policy)
        workers = under_load(process, process.kill)
        process = launch("--appendfsync", policy)
        check(process.client(), workers)
        process.client().delete("s")
        process.end()


@pytest.mark.parametrize("work", ["bgrewriteaof", "bgsave"])
def test_killed_in_the_middle_of_a_rewrite_or_a_snapshot(launch, tmp_path: Path, work: str):
    process = launch("--appendfsync", "always")
    client = process.client()
    with client.pipeline(transaction=False) as pipe:
        for n in range(40_000):  # so that it takes a while
            pipe.set(f"key-{n}", "v" * 100)
        pipe.execute()

    def strike() -> None:
        client.execute_command(work)
        wait_until(lambda: any(tmp_path.rglob("temp-*")))
        process.kill()

    workers = under_load(process, strike)
    process = launch("--appendfsync", "always")
    client = process.client()
    check(client, workers)
    assert client.dbsize() == 40_001
    left = os.listdir(tmp_path) + os.listdir(tmp_path / "appendonlydir")
    assert not [name for name in left if name.startswith("temp-")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, if we may mount one."""
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip(f"no small file system can be mounted: {done.stderr if done else 'there is no mount'}")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


class Wall:
    """A client that writes until the disk is full, and afterwards."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.kept: list[str] = []  # IDs acknowledged
        self.refusal = ""
        self.enough = False
        self.thread = threading.Thread(target=self.write, daemon=True)

    def write(self) -> None:
        client = self.process.client()
        while not self.enough:
            try:
                self.kept.append(client.xadd("s", {"v": "x" * 5000}))
            except redis.ResponseError as refusal:
                self.refusal = str(refusal)
                return

    def run_into_it(self) -> None:
        """An answer is held; writes of others are refused, reads go on."""
        self.thread.start()
        with self.process.client() as other:
            wait_until(lambda: other.info("persistence")["aof_last_write_status"] == "err")
            with pytest.raises(redis.ResponseError, match=r"MISCONF Errors writing to the AOF file: .+"):
                other.set("k", "v")
            assert len(self.kept) <= other.xlen("s") <= len(self.kept) + 1
            assert other.xrange("s", count=1)[0][1] == {"v": "x" * 5000}
        assert self.thread.is_alive()

    def get_over_it(self) -> None:
        """There is room: the held answer comes, and writes are taken again."""
        wall = len(self.kept)
        wait_until(lambda: len(self.kept) > wall + 1)
        self.enough = True
        self.thread.join(SECONDS_MAX)
        assert not self.thread.is_alive() and not self.refusal
        assert self.process.client().info("persistence")["aof_last_write_status"] == "ok"

    def check(self, client: redis.Redis) -> None:
        assert [entry for entry, _ in client.xrange("s")] == self.kept
        assert client.exists("k") == 0


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_full_disk_and_room_again(launch, small_disk: Path, policy: str):
    process = launch("--appendfsync", policy, directory=small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(3 << 20))
    wall = Wall(process)
    wall.run_into_it()
    ballast.unlink()
    wall.get_over_it()
    process.kill()
    wall.check(launch("--appendfsync", policy, directory=small_disk).client())


def test_a_file_that_may_not_grow(launch):
    """The limit on a file's size is a full disk that a parent may set without being root, and may lift."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    process = launch("--appendfsync", "always", preexec_fn=limit)
    wall = Wall(process)
    wall.run_into_it()
    resource.prlimit(process.child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    wall.get_over_it()
    process.kill()
    wall.check(launch("--appendfsync", "always").client())


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (lambda path: path / "no such", ()),
        (lambda path: Path("/proc/self"), ()),
        (lambda path: (path / "appendonlydir").touch() or path, ()),
        (lambda path: (path / "dump.rdb").write_bytes(b"nonsense") and path, ("--appendonly", "no")),
    ],
    ids=["missing", "read-only", "a file in its place", "nonsense"],
)
def test_a_directory_that_will_not_do_is_one_line_and_exit_code_2(tmp_path: Path, make, arguments):
    directory = make(tmp_path)
    command = [
        sys.executable,
        "-m",
        "headrace",
        "serve",
        "--port",
        "free",
        "--dir",
        str(directory),
        *arguments,
    ]
    here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=here, timeout=SECONDS_MAX)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("headrace: ") and done.stderr.count("\n") == 1
    assert str(directory) in done.stderr


def test_the_second_server_is_told_who_has_the_directory(launch, tmp_path: Path):
    first = launch()
    command = [sys.executable, "-m", "headrace", "serve", "--port", "free", "--dir", str(tmp_path)]
    here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=here, timeout=SECONDS_MAX)
    assert done.returncode == 2
    assert f"process {first.child.pid}" in done.stderr and f"127.0.0.1:{first.port}" in done.stderr
    first.kill()
    launch().client().ping()


def test_sigterm_saves_by_rule(launch, tmp_path: Path):
    process = launch("--save", "3600", "1")
    process.client().set("k", "v")
    process.end()
    assert process.child.returncode == 0
    shutil.rmtree(tmp_path / "appendonlydir")
    assert launch().client().get("k") == "v"


# One directory, two programs.


@contextlib.contextmanager
def real_redis(directory: Path) -> Iterator[redis.Redis]:
    with (
        redis_server(directory, "--appendonly", "yes") as port,
        redis.Redis(port=port, decode_responses=True) as client,
    ):
        yield client


def a_history(client: redis.Redis) -> None:
    for n in range(1, 300):
        client.xadd("s", {"n": n, "text": f"entry {n}"}, id=f"{n}-{n % 3 + 1}")
    client.xgroup_create("s", GROUP, id="0")
    for name in ("ann", "ben"):
        client.xreadgroup(GROUP, name, {"s": ">"}, count=20)
    client.xack("s", GROUP, "1-2", "2-3", "22-2")
    client.xclaim("s", GROUP, "cid", 0, ["3-1", "4-2"])
    client.xdel("s", "3-1", "100-2")
    client.xtrim("s", maxlen=250, approximate=False)
    client.set("text", "v" * 100)
    client.set("number", 12)
    client.expire("number", 1000)
    client.pipeline(transaction=True).incr("number").xadd("t", {"f": "v"}, id="1-1").execute()


def view(client: redis.Redis) -> list:
    """All that both can tell of the data, moments aside."""
    info = client.xinfo_stream("s")
    groups = client.xinfo_groups("s")
    return [
        sorted(client.keys()),
        client.xrange("s"),
        [info[name] for name in ("length", "last-generated-id", "max-deleted-entry-id", "entries-added")],
        [[g[name] for name in ("name", "consumers", "pending", "last-delivered-id", "lag")] for g in groups],
        [
            [item["message_id"], item["consumer"], item["times_delivered"]]
            for item in client.xpending_range("s", GROUP, "-", "+", 1000)
        ],
        client.mget("text", "number"),
        client.ttl("number") > 900,
        client.xrange("t"),
    ]


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_redis_starts_on_our_directory_and_we_on_its(launch, tmp_path: Path, preamble: str):
    process = launch("--aof-use-rdb-preamble", preamble)
    client = process.client()
    a_history(client)
    client.bgrewriteaof()
    wait_until(lambda: client.info("persistence")["aof_rewrites"] == 1)
    client.xadd("s", {"after": "the rewrite"}, id="1000-1")
    client.xack("s", GROUP, "5-3")
    seen = view(client)
    process.end()
    with real_redis(tmp_path) as theirs:
        assert view(theirs) == seen
        theirs.xadd("s", {"by": "redis"}, id="2000-1")
        theirs.xreadgroup(GROUP, "dan", {"s": ">"}, count=5)
        theirs.bgrewriteaof()
        wait_until(lambda: not theirs.info("persistence")["aof_rewrite_in_progress"])
        theirs.xadd("s", {"by": "redis"}, id="2000-2")
        seen = view(theirs)
    client = launch().client()
    assert view(client) == seen
