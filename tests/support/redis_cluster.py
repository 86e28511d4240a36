"""Real redis-servers on loopback that form a cluster, or a master with its replica and Sentinels."""

from __future__ import annotations

import pathlib
import subprocess

import redis

from support.certificates import Authority
from support.redis_programs import installed_redis, installed_redis_with_tls
from support.redis_server import free_port
from support.waiting import wait_until

SLOTS = 16384
NODE_TIMEOUT_MS = 1000


class Certificates:
    """An authority, and one certificate for 127.0.0.1 that servers and clients present."""

    def __init__(self, folder: pathlib.Path) -> None:
        made = Authority(folder)
        self.own = made.certify("server")
        self.authority = made.file

    def server_words(self) -> list[str]:
        return ["--tls-ca-cert-file", str(self.authority), *self.own.server_words()]

    def client_settings(self) -> dict[str, str]:
        files = {"ca_certs": self.authority, "keyfile": self.own.key, "certfile": self.own.file}
        return {f"ssl_{name}": str(path) for name, path in files.items()}

    def query(self) -> str:
        return "?" + "&".join(f"{name}={value}" for name, value in self.client_settings().items())


class Node:
    """One redis-server process."""

    def __init__(self, folder: pathlib.Path, *words: str, certificates: Certificates | None = None) -> None:
        self.port = free_port()
        self.folder = folder / str(self.port)
        self.folder.mkdir()
        ports = ["--port", str(self.port)]
        self.client = redis.Redis(port=self.port)
        if certificates:
            ports = ["--port", "0", "--tls-port", str(self.port), *certificates.server_words()]
            self.client = redis.Redis("127.0.0.1", self.port, ssl=True, **certificates.client_settings())
        program = installed_redis_with_tls() if certificates else installed_redis()
        self.words = [program, *words, *ports, "--save", "", "--appendonly", "no"]
        self.words += ["--repl-diskless-sync-delay", "0"]
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process, again if it was killed."""
        self.process = subprocess.Popen(self.words, cwd=self.folder, stdout=subprocess.DEVNULL)
        try:
            wait_until(self.answers, "a redis-server to start")
        except BaseException:
            self.kill()
            raise
        return self.process

    def answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def wait_for(self, replica: Node) -> None:
        """Wait until the replica has all writes of this node; WAIT would cover only one connection."""
        written = self.client.info("replication")["master_repl_offset"]
        wait_until(lambda: replica.client.info("replication")["slave_repl_offset"] >= written, "the replica")

    def kill(self) -> None:
        """Kill the process without a shutdown, like a failing machine."""
        self.client.close()
        self.process.kill()
        self.process.wait()


class Cluster:
    """Three masters with a third of the slots each, and a replica of the first one."""

    def __init__(self, folder: pathlib.Path) -> None:
        words = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS))
        self.nodes = [Node(folder, *words, "--cluster-port", str(free_port())) for _ in range(4)]
        self.masters, self.replica = self.nodes[:3], self.nodes[3]
        self.url = "cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.masters)
        bounds = [SLOTS * n // 3 for n in range(4)]
        for n, node in enumerate(self.masters):
            node.client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
        for node in self.nodes[1:]:
            bus = node.words[node.words.index("--cluster-port") + 1]
            self.nodes[0].client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        wait_until(lambda: all(self.known(node) == 4 for node in self.nodes), "the nodes to meet")
        self.replica.client.execute_command("CLUSTER", "REPLICATE", self.id(self.masters[0]))
        wait_until(lambda: all(self.ok(node) for node in self.nodes), "the cluster to be whole")
        wait_until(self.replicates, "the replica")
        self.client = redis.RedisCluster("127.0.0.1", self.masters[0].port)

    def id(self, node: Node) -> str:
        return str(node.client.execute_command("CLUSTER", "MYID").decode())

    def known(self, node: Node) -> int:
        return int(self.info(node)["cluster_known_nodes"])

    def ok(self, node: Node) -> bool:
        return self.info(node)["cluster_state"] == "ok"

    def info(self, node: Node) -> dict[str, str]:
        text = node.client.execute_command("CLUSTER", "INFO")
        if isinstance(text, dict):
            return {str(k): str(v) for k, v in text.items()}
        return dict(line.split(":", 1) for line in text.decode().split())

    def replicates(self) -> bool:
        return self.replica.client.info("replication")["master_link_status"] == "up"

    def stream_of(self, node: Node, name: str = "s") -> str:
        """Return the name of a stream whose slot belongs to the master."""
        n = self.masters.index(node)
        for i in range(1000):
            stream = f"{name}{i}"
            if SLOTS * n // 3 <= int(self.client.keyslot(stream)) < SLOTS * (n + 1) // 3:
                return stream
        raise AssertionError("no such name")

    def close(self) -> None:
        for node in self.nodes:
            node.kill()


class SentinelSetup:
    """A master with a replica, and a Sentinel that monitors them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.master = Node(folder)
        self.replica = Node(folder, "--replicaof", "127.0.0.1", str(self.master.port))
        wait_until(
            lambda: self.replica.client.info("replication")["master_link_status"] == "up", "the replica"
        )
        self.port = free_port()
        file = folder / "sentinel.conf"
        file.write_text(
            f"port {self.port}\nsentinel monitor orders 127.0.0.1 {self.master.port} 1\n"
            f"sentinel down-after-milliseconds orders {NODE_TIMEOUT_MS}\n"
            "sentinel failover-timeout orders 5000\n"
        )
        words = [installed_redis(), str(file), "--sentinel"]
        self.process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
        self.url = f"sentinel://127.0.0.1:1,127.0.0.1:{self.port}/orders"
        wait_until(self.sees_both, "the Sentinel to find the replica")

    def sees_both(self) -> bool:
        try:
            return int(redis.Redis(port=self.port).sentinel_master("orders")["num-slaves"]) == 1
        except redis.ConnectionError:
            return False

    def close(self) -> None:
        for node in (self.master, self.replica):
            node.kill()
        self.process.kill()
        self.process.wait()
