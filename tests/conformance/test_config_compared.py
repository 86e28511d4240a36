"""The configuration beside a real redis-server's: what is refused in which words, files for each other."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.errors import CommandError
from headrace.resp.reply_parser import ReplyParser
from headrace.server.config.config import Config
from headrace.server.config.directives import DIRECTIVES_BY_NAME, IGNORED, UNSUPPORTED, canonical
from headrace.server.config.rewrite import rewrite
from support.redis_programs import installed_redis

SECONDS_MAX = 20.0
REFUSALS = [
    "hz x",
    "tcp-keepalive -1",
    "maxclients 0",
    "timeout 99999999999999999999",
    "nope 1",
    "nope 1 hz x",
    "hz x nope 1",
    "save 1",
    "save a 1",
    "appendonly maybe",
    "appendfsync never",
    "logfile x",
    "pidfile x",
    "databases 3",
    "unixsocketperm 77",
    "appendfilename x",
    "appenddirname x",
    "client-query-buffer-limit 1",
    "stream-node-max-entries -1",
    "stream-node-max-bytes -1",
    "stream-node-max-bytes 4tb",
    "client-output-buffer-limit odd 1 2 3",
    "auto-aof-rewrite-percentage -1",
    "replicaof h",
    "slaveof h",
    "repl-backlog-size 0",
    "repl-backlog-ttl -1",
    "repl-timeout 0",
    "repl-ping-slave-period 0",
    "repl-diskless-sync-delay 2147483648",
    "repl-diskless-sync-max-replicas -1",
    "replica-priority -1",
    "slave-announce-port 65536",
    "min-slaves-to-write -1",
    "min-replicas-max-lag x",
    "shutdown-timeout -1",
    "propagation-error-behavior x",
    "tls-replication x",
]
# One file for both; the directives whose value is compared afterwards.
FILE = """\
# ours and theirs
save 900 1
save 300 10

hz 20
timeout 7
maxclients 60
notify-keyspace-events Ex
stream-node-max-bytes 8kb
slave-priority 3
min-slaves-to-write 1
client-query-buffer-limit 512mb
appendfilename "my log.aof"
hz 30
"""
CHANGES = [
    ("hz", "50"),
    ("save", "5 1 6 2"),
    ("timeout", "0"),
    ("stream-node-max-bytes", "1000"),
    ("stream-node-max-entries", "7"),
    ("notify-keyspace-events", ""),
    ("appendfsync", "always"),
    ("proto-max-bulk-len", "2gb"),
    ("loglevel", "verbose"),
    ("repl-backlog-size", "1"),
    ("slave-read-only", "no"),
    ("replica-priority", "7"),
    ("slave-priority", "8"),
    ("min-slaves-max-lag", "5"),
]
COMPARED = [
    *(name for name, _ in CHANGES),
    "min-replicas-to-write",
    "maxclients",
    "client-query-buffer-limit",
    "appendfilename",
]


class Redis:
    """A redis-server with a configuration file of its own."""

    def __init__(self, directory: Path, file: Path) -> None:
        self.path = directory / "socket"
        command = [
            installed_redis(),
            str(file),
            "--port",
            "0",
            "--unixsocket",
            str(self.path),
            "--dir",
            str(directory),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def ask(self, *words: str) -> object:
        """The answer to a request."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(SECONDS_MAX)
            deadline = time.monotonic() + SECONDS_MAX
            while client.connect_ex(str(self.path)):
                assert self.process.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
            request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            client.sendall(request.encode() + b"QUIT\r\n")
            parser = ReplyParser()
            parser.feed(b"".join(iter(lambda: client.recv(65536), b"")))
            return parser.next()

    def get(self, pattern: str) -> dict[str, str]:
        """What CONFIG GET shows."""
        shown = self.ask("CONFIG", "GET", pattern)
        assert isinstance(shown, list)
        words = [word.decode() for word in shown]
        return dict(zip(words[::2], words[1::2], strict=True))

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[[Path], Redis]]:
    installed_redis()  # or the test is skipped
    started: list[Redis] = []

    def run(file: Path) -> Redis:
        directory = tmp_path / f"redis-{len(started)}"
        directory.mkdir()
        started.append(Redis(directory, file))
        return started[-1]

    yield run
    for redis in started:
        redis.stop()


def read(file: Path) -> Config:
    config = Config()
    config.read_arguments([str(file)])
    return config


def refusal(config: Config, words: list[str]) -> str:
    pairs = list(zip(words[::2], words[1::2], strict=True))
    try:
        config.set([(name.encode(), value.encode()) for name, value in pairs])
    except CommandError as refused:
        return str(refused)
    return "OK"


def test_what_config_set_refuses_and_in_which_words(start_redis: Callable[[Path], Redis], tmp_path: Path):
    file = tmp_path / "empty.conf"
    file.write_text("")
    redis = start_redis(file)
    config = read(file)
    theirs, ours = {}, {}
    for line in REFUSALS:
        name, _, value = line.partition(" ")
        words = line.split() if line.startswith(("hz", "nope")) else [name, value]
        theirs[line], ours[line] = str(redis.ask("CONFIG", "SET", *words)), refusal(config, words)
    assert ours == theirs
    assert "OK" not in theirs.values()


def test_a_file_that_one_rewrites_the_other_reads(start_redis: Callable[[Path], Redis], tmp_path: Path):
    mine, theirs = tmp_path / "mine.conf", tmp_path / "theirs.conf"
    mine.write_text(FILE)
    theirs.write_text(FILE)
    config, redis = read(mine), start_redis(theirs)
    for name, value in CHANGES:
        config.set([(name.encode(), value.encode())])
        assert redis.ask("CONFIG", "SET", name, value) == "OK"
    shown = {name: config.formatted_value(canonical(name)) for name in COMPARED}
    assert {name: redis.get(name)[name] for name in COMPARED} == shown
    rewrite(config)
    assert redis.ask("CONFIG", "REWRITE") == "OK"
    other = read(theirs)
    assert {name: other.formatted_value(canonical(name)) for name in COMPARED} == shown
    fresh = start_redis(mine)
    assert {name: fresh.get(name)[name] for name in COMPARED} == shown
    kept = [line for line in theirs.read_text().splitlines() if line in FILE.splitlines()]
    assert [line for line in mine.read_text().splitlines() if line in kept] == kept


def test_every_directive_of_redis_is_known(start_redis: Callable[[Path], Redis], tmp_path: Path):
    file = tmp_path / "empty.conf"
    file.write_text("")
    names = start_redis(file).get("*")
    assert len(names) > 150
    assert {name for name in names if canonical(name) not in DIRECTIVES_BY_NAME} <= IGNORED | UNSUPPORTED


def test_the_primary_in_a_file_that_one_rewrites_and_the_other_reads(
    start_redis: Callable[[Path], Redis], tmp_path: Path
):
    mine, theirs = tmp_path / "mine.conf", tmp_path / "theirs.conf"
    for file in (mine, theirs):
        file.write_text("slaveof ::1 1\nreplica-announced yes\n")
    config, redis = read(mine), start_redis(theirs)
    shown = dict(config.get([b"replicaof", b"slaveof"]))
    assert {name.encode(): value.encode() for name, value in redis.get("*aveof").items()} == {
        b"slaveof": shown[b"slaveof"]
    }
    assert redis.get("replicaof") == {"replicaof": shown[b"replicaof"].decode()}
    config.values["replicaof"] = "localhost 2"
    rewrite(config)
    assert redis.ask("REPLICAOF", "localhost", "2") == "OK"
    assert redis.ask("CONFIG", "REWRITE") == "OK"
    assert mine.read_text().splitlines()[0] == theirs.read_text().splitlines()[0] == "replicaof localhost 2"
    assert read(theirs).text("replicaof") == "localhost 2"
    assert start_redis(mine).get("replicaof") == {"replicaof": "localhost 2"}
    config.values["replicaof"] = ""
    rewrite(config)
    assert start_redis(mine).get("replicaof") == {"replicaof": ""}
    assert read(mine).text("replicaof") == ""
