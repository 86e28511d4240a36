"""Cold files in an object store: a real server of the protocol of S3, faults, a lost network, kill -9."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from headrace.cli.main import main
from headrace.errors import UsageError
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.object_store import ObjectStore
from server.cut_network import Network
from server.server_process import Process
from support import object_store
from support.faulty_proxy import Fault
from support.object_store import BUCKET, FaultyProxy, proxy_of, s3_server
from support.waiting import wait_until

pytestmark = pytest.mark.whole

ENTRIES = 10_000
PER_LIFE = 10_000
FILE_BYTES = 20_000
RUN_BYTES = 20_000
LIMITS = ("--appendonly", "yes", "--stream-hot-memory", "100kb", "--cold-cache-memory", "1mb")
LIMITS = (*LIMITS, "--cold-local-bytes", "0", "--cold-store-timeout", "3", "--enable-debug-command", "yes")
SECRET = object_store.CREDENTIALS["AWS_SECRET_ACCESS_KEY"]


@pytest.fixture(scope="module")
def store_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as port:
        yield port


@pytest.fixture
def proxy(store_port: int) -> Iterator[FaultyProxy]:
    with proxy_of(store_port) as proxy:
        yield proxy


@pytest.fixture
def network(store_port: int) -> Iterator[Network]:
    network = Network(store_port)
    yield network
    network.close()


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch):
    """reach(port) has the store found there."""

    def to(port: int) -> None:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)

    return to


def environment(port: int) -> dict[str, str]:
    return object_store.options_of(port, AWS_ALLOW_HTTP="true")


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also small runs, and short requests with whole files."""
    monkeypatch.setitem(ColdFiles.__init__.__kwdefaults__, "file_bytes_max", FILE_BYTES)
    monkeypatch.setattr("headrace.keyspace.cold_storage.RUN_BYTES", RUN_BYTES)
    monkeypatch.setattr("headrace.persistence.cold.object_store.FILE_ATTEMPT_S", 2.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def connect() -> Iterator[object]:
    clients: list[redis.Redis] = []

    def to(server) -> redis.Redis:
        clients.append(redis.Redis(port=server.port, socket_timeout=60))
        return clients[-1]

    yield to
    for client in clients:
        client.close()


def fill(client: redis.Redis, first: int = 1) -> None:
    pipe = client.pipeline(transaction=False)
    for number in range(first, first + ENTRIES):
        pipe.xadd("s", {"number": number, "text": f"{number * 7919 % 100_003:x}" * 20}, id=f"{number}-0")
    pipe.execute()


def info(client: redis.Redis) -> dict[str, int | str]:
    return {name: value for name, value in client.info("memory").items() if name.startswith("cold_")}


def local(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "appendonlydir/cold").glob("*.cold")]


def settle(client: redis.Redis, tmp_path: Path) -> None:
    """Wait until all sealed files are in the store only."""
    wait_until(lambda: client.info("memory")["used_memory_dataset"] < 200_000)
    wait_until(lambda: len(local(tmp_path)) <= 1 and info(client)["cold_store_files"] > 2)


def numbers(client: redis.Redis) -> list[int]:
    """Read the whole stream in parts, as a group; return the numbers."""
    client.xgroup_create("s", "g", "0")
    found: list[int] = []
    while entries := client.xreadgroup("g", "ann", {"s": ">"}, count=500, noack=True):
        found += [int(fields[b"number"]) for _, fields in entries[0][1]]
    client.xgroup_destroy("s", "g")
    return found


def rewrite(client: redis.Redis) -> None:
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    assert client.info("persistence")["aof_last_bgrewrite_status"] == "ok"


def has_entry(client: redis.Redis, entry: str) -> bool:
    try:
        return bool(client.xrange("s", entry, entry))
    except redis.ResponseError:
        return False


EVERYTHING = list(range(1, ENTRIES + 1))


def test_a_stream_in_the_store_is_read_and_survives_restarts(
    reach, store_port, start, connect, tmp_path, url, small_files, caplog
) -> None:
    reach(store_port)
    server = start(*LIMITS, "--cold-store", url)
    client = connect(server)
    fill(client)
    settle(client, tmp_path)
    assert numbers(client) == EVERYTHING
    found = info(client)
    assert found["cold_store"] == url and found["cold_store_reads"] > 10 and found["cold_store_bytes"] > 0
    assert found["cold_parked_requests"] > 10 and found["cold_store_uploads_failed"] == 0
    client.xdel("s", *range(5, 500, 7))
    digest = client.execute_command("DEBUG", "DIGEST-VALUE", "s")
    rewrite(client)  # by reference to files that are only in the store
    reads = info(client)["cold_store_reads"]
    client.bgsave()
    wait_until(lambda: not client.info("persistence")["rdb_bgsave_in_progress"])
    assert client.info("persistence")["rdb_last_bgsave_status"] == "ok"
    assert info(client)["cold_store_reads"] > reads
    server.stop()
    server = start(*LIMITS, "--cold-store", url)
    client = connect(server)
    assert client.execute_command("DEBUG", "DIGEST-VALUE", "s") == digest
    shown = str(client.config_get("*")) + str(client.info("everything")) + caplog.text
    assert client.config_get("cold-store") == {"cold-store": url} and SECRET not in shown
    client.delete("s")
    rewrite(client)
    wait_until(lambda: info(client)["cold_store_files"] == 0)
    wait_until(lambda: [name for name in ObjectStore(url).list() if name.endswith(".cold")] == [])


def test_faults_of_the_store_are_retried(reach, proxy, full_with, caplog) -> None:
    client = full_with(proxy.port)
    for fault in (
        Fault("GET .*[.]cold", status=503, code="SlowDown", times=2),
        Fault("GET .*[.]cold", partial=True, times=2),
        Fault("GET .*[.]cold", times=2),
        Fault("GET .*[.]cold", seconds=1.5, status=500, times=1),  # longer than an attempt may take
    ):
        proxy.set_fault(fault)
        before = info(client)["cold_store_retries"]
        assert numbers(client) == EVERYTHING
        assert info(client)["cold_store_retries"] > before
    assert info(client)["cold_store_reads_failed"] == 0


@pytest.fixture
def full_with(reach, start, connect, tmp_path, url, small_files):
    """full_with(port, …) is the client of a server most of whose entries are in the store of this port."""

    def run(port: int, *more: str) -> redis.Redis:
        reach(port)
        client = connect(start(*LIMITS, "--cold-store", url, *more))
        fill(client)
        settle(client, tmp_path)
        return client

    return run


@pytest.mark.parametrize("silent", [True, False])
def test_a_lost_network_fails_reads_of_its_runs_only(full_with, network, connect, tmp_path, silent) -> None:
    client = full_with(network.port)
    rewrite(client)
    network.cut(silent=silent)
    with pytest.raises(redis.ResponseError, match=r"COLDERR the entries 1-0 to .*[.]cold.*: s3://lake/"):
        client.xrange("s", 1, 1)
    assert info(client)["cold_store_last_error"].startswith("s3://lake/")
    assert client.xrevrange("s", count=1)[0][0] == b"10000-0"  # in memory
    fill(client, ENTRIES + 1)
    wait_until(lambda: info(client)["cold_store_uploads_failed"] > 0)
    assert info(client)["cold_store_last_error"].startswith("s3://lake/")
    assert info(client)["cold_store_waiting_files"] > 0 and len(local(tmp_path)) > 1
    rewrite(client)
    network.restore()
    wait_until(lambda: info(client)["cold_store_waiting_files"] == 0 and len(local(tmp_path)) <= 1)
    wait_until(lambda: info(client)["cold_store_last_error"] == "")
    assert numbers(client) == list(range(1, 2 * ENTRIES + 1))


def test_the_event_loop_serves_others_while_the_store_does_not_answer(full_with, network, connect) -> None:
    client = full_with(network.port, "--cold-store-timeout", "60")
    network.cut(silent=True)
    replies: list[object] = []
    other = redis.Redis(connection_pool=client.connection_pool)
    waiting = threading.Thread(target=lambda: replies.append(other.xrange("s", 1, 1)))
    before = info(client)["cold_parked_requests"]
    waiting.start()
    wait_until(lambda: info(client)["cold_parked_requests"] > before)
    for number in range(100):
        client.xadd("t", {"n": number})
    assert client.xlen("t") == 100 and not replies
    network.restore()
    waiting.join()
    assert replies[0][0][0] == b"1-0"


def test_a_lost_network_at_the_start_is_no_obstacle(
    full_with, network, start, connect, tmp_path, url, caplog, monkeypatch
) -> None:
    client = full_with(network.port)
    rewrite(client)
    client.shutdown()
    network.cut()
    monkeypatch.setattr("headrace.server.disk.cold_object_store.START_TIMEOUT_S", 0.5)
    client = connect(start(*LIMITS, "--cold-store", url))
    assert client.xlen("s") == ENTRIES
    assert info(client)["cold_store_last_error"].startswith("s3://lake/")
    network.restore()
    wait_until(lambda: info(client)["cold_store_last_error"] == "")
    assert numbers(client) == EVERYTHING


def test_rules_trim_what_is_in_the_store_and_only_other_threads_read_it(
    full_with, network, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = full_with(network.port)
    readers: set[str] = set()
    real = ObjectStore.get_range

    def get_range(self: ObjectStore, *arguments: object) -> bytes:
        readers.add(threading.current_thread().name)
        return real(self, *arguments)

    monkeypatch.setattr(ObjectStore, "get_range", get_range)
    network.cut(silent=True)
    client.execute_command("XCFGSET", "s", "MAX-LEN", 5000)
    wait_until(lambda: readers)
    assert client.ping() and client.xlen("s") > 5000
    network.restore()
    wait_until(lambda: 5000 <= client.xlen("s") < 5100)
    assert all(name.startswith("cold-store-reader") for name in readers)


def test_a_replica_gets_all_entries_and_may_have_a_store_of_its_own(
    full_with, store_port, start, connect, tmp_path, url
) -> None:
    client = full_with(store_port)
    port = client.connection_pool.connection_kwargs["port"]
    (tmp_path / "other").mkdir()
    more = ("--cold-store", f"{url}-replica", "--dir", str(tmp_path / "other"))
    replica = connect(start(*LIMITS, *more, "--replicaof", f"127.0.0.1 {port}"))
    wait_until(lambda: replica.info("replication")["master_link_status"] == "up")
    wait_until(lambda: info(replica).get("cold_store_files", 0) > 2)
    digests = [each.execute_command("DEBUG", "DIGEST-VALUE", "s") for each in (client, replica)]
    assert digests[0] == digests[1] and replica.xlen("s") == ENTRIES


def test_two_servers_cannot_share_a_prefix(full_with, store_port, start, tmp_path, url) -> None:
    full_with(store_port)
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match="belongs to another data directory"):
        start(*LIMITS, "--cold-store", url, "--dir", str(tmp_path / "other"))


def test_without_its_store_a_server_does_not_start(full_with, store_port, start, url) -> None:
    client = full_with(store_port)
    rewrite(client)
    client.shutdown()
    with pytest.raises(UsageError, match="the file is in an object store"):
        start(*LIMITS)
    with pytest.raises(UsageError, match="does not have the cold files of this data directory"):
        start(*LIMITS, "--cold-store", f"{url}-other")


def test_without_the_package_a_server_does_not_start(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    assert main(["serve", "--port", "free", "--dir", str(tmp_path), "--cold-store", "s3://bucket/x"]) == 2
    assert "pip install 'headrace[cloud]'" in capsys.readouterr().err


def test_a_url_with_credentials_is_refused_and_not_shown(tmp_path, capsys) -> None:
    url = f"s3://key:{SECRET}@bucket/x"
    assert main(["serve", "--port", "free", "--dir", str(tmp_path), "--cold-store", url]) == 2
    shown = capsys.readouterr().err
    assert "read from the environment" in shown and SECRET not in shown


def test_a_transaction_waits_for_the_store_and_fails_if_it_is_lost(full_with, network) -> None:
    client = full_with(network.port)
    with client.pipeline() as pipe:
        assert pipe.xrange("s", 1, 1).execute()[0][0][0] == b"1-0"
    network.cut(silent=True)
    with client.pipeline() as pipe:
        pipe.xrange("s", 3000, 3000)
        with pytest.raises(redis.ResponseError, match="COLDERR the entries"):
            pipe.execute()
    network.restore()
    wait_until(lambda: has_entry(client, "3000-0"))


def test_a_server_that_is_killed_loses_and_doubles_nothing(reach, store_port, tmp_path, url) -> None:
    """Each life seals the file of the one before; it is killed while that is uploaded, or removed."""
    reach(store_port)
    options = (*LIMITS, "--cold-store", url, "--appendfsync", "always")
    count = 0
    for life in range(7):
        process = Process(tmp_path, *options)
        try:
            with process.client() as client:
                assert client.xlen("s") == count
                if life == 6:
                    check_last_life(client, count, url)
                    break
                add(client, count, PER_LIFE)
                count += PER_LIFE
                client.bgrewriteaof()
                wait_until(lambda client=client: not client.info("persistence")["aof_rewrite_in_progress"])
                if life % 2:
                    wait_until(lambda client=client: info(client)["cold_store_uploads"] > 0)
        finally:
            process.kill()


def add(client: redis.Redis, after: int, count: int) -> None:
    pipe = client.pipeline(transaction=False)
    for number in range(after + 1, after + count + 1):
        pipe.xadd("s", {"number": number, "text": os.urandom(30).hex()}, id=f"{number}-0")
    pipe.execute()
    wait_until(lambda: client.info("memory")["used_memory_dataset"] < 800_000)


def check_last_life(client: redis.Redis, count: int, url: str) -> None:
    found = [int(fields["number"]) for _, fields in client.xrange("s")]
    assert found == list(range(1, count + 1))
    wait_until(lambda: info(client)["cold_store_waiting_files"] == 0)
    files = info(client)["cold_store_files"]
    assert files >= 3
    wait_until(lambda: len([name for name in ObjectStore(url).list() if name.endswith(".cold")]) == files)
