"""Clients of other languages do the same with a Headrace server and with a real redis-server.

Each script beside this file runs parts (streams, groups, ...) of one client and prints every result. Both
servers must give the same output. A part that needs a command which this server does not have is skipped.

The packages of npm are installed by `make` into build/clients, as package-lock.json says. They need Node.js
20, which Debian 13 has. php-redis and ruby-redis are Debian's.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from support.headrace_server import headrace_server
from support.redis_programs import KINDS, PACKAGED, find_installed, packaged_redis, redis_program, version_of
from support.redis_server import redis_server

HERE = Path(__file__).parent
MODULES = HERE.parent.parent / "build" / "clients" / "node_modules"
SECONDS_MAX = 180  # of one script, on a busy machine

STREAM_PARTS = ["streams", "groups", "blocking", "transactions", "pubsub"]
PARTS = {
    "node_redis.mjs": [*STREAM_PARTS, "scripts", "tracking", "sharded"],
    "ioredis.mjs": [*STREAM_PARTS, "scripts", "sharded"],
    "valkey_glide.mjs": [*STREAM_PARTS, "scripts"],
    "php_redis.php": [*STREAM_PARTS, "scripts"],
    "ruby_redis.rb": [*STREAM_PARTS, "scripts"],
}
NEEDS = {"scripts": "eval_ro", "tracking": "client|tracking", "sharded": "ssubscribe"}
CASES = [(script, part) for script, parts in PARTS.items() for part in parts]


@functools.cache
def missing(script: str) -> str | None:
    """Return what this script lacks to run, or None."""
    checks = {
        "mjs": (
            ["node", "-e", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)"],
            "Node.js 20 or later",
        ),
        "php": (["php", "-r", "exit(extension_loaded('redis') ? 0 : 1);"], "php with php-redis"),
        "rb": (["ruby", "-e", "require 'redis'"], "ruby with ruby-redis"),
    }
    command, name = checks[script.rpartition(".")[2]]
    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True).returncode:
        return f"{name} is not installed"
    if command[0] == "node" and not MODULES.is_dir():
        return "the packages of npm are not installed: run make build/clients/.installed"
    return None


@functools.cache
def interpreter(script: str) -> list[str]:
    return {"mjs": ["node"], "php": ["php"], "rb": ["ruby"]}[script.rpartition(".")[2]]


class Server:
    """A running server, and what the scripts printed when they talked to it."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self.folder = folder
        self.printed: dict[str, dict[str, list[str]]] = {}
        with redis.Redis(port=port, protocol=2) as client:
            client.response_callbacks.clear()
            rows = {name: client.execute_command("COMMAND", "INFO", name) for name in NEEDS.values()}
        self.commands = {name for name, row in rows.items() if row[0]}

    def can_do(self, part: str) -> bool:
        return part not in NEEDS or NEEDS[part] in self.commands

    def output(self, script: str, part: str) -> list[str]:
        """Return what a part printed; the first call runs all parts that this server can do."""
        if script not in self.printed:
            parts = [each for each in PARTS[script] if self.can_do(each)]
            self.printed[script] = self._run(script, parts)
        return self.printed[script][part]

    def _run(self, script: str, parts: list[str]) -> dict[str, list[str]]:
        """Run a script. Node.js finds packages beside the script, so it runs in a folder with both."""
        words = [*interpreter(script), str(self.folder / script), str(self.port), *parts]
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_MAX)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        found: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            if line.startswith("== "):
                found[line[3:]] = lines = []
            else:
                lines.append(line)
        assert list(found) == parts, done.stderr[-2000:]
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts, and the packages of npm if they are installed."""
    made = tmp_path_factory.mktemp("clients")
    for pattern in ("*.mjs", "*.php", "*.rb"):
        for file in HERE.glob(pattern):
            shutil.copy(file, made)
    if MODULES.is_dir():
        os.symlink(MODULES, made / "node_modules")
    return made


@pytest.fixture(scope="module")
def ours(folder: Path) -> Iterator[Server]:
    with headrace_server() as port:
        yield Server(port, folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Iterator[Server]:
    """The newest redis-server there is: the clients of npm use commands of Redis 8.2."""
    with redis_server(kind=newest_kind()) as port:
        yield Server(port, folder)


def newest_kind() -> str:
    """Return the kind of the newest redis-server; skip the test if that is older than 8.2."""
    packaged_redis()
    if find_installed() is None:
        return PACKAGED
    return max(KINDS, key=lambda kind: version_of(redis_program(kind)))


@pytest.mark.parametrize(("script", "part"), CASES, ids=[f"{s.partition('.')[0]}-{p}" for s, p in CASES])
def test_a_client_gets_the_same_results(ours: Server, theirs: Server, script: str, part: str) -> None:
    if reason := missing(script):
        pytest.skip(reason)
    if not ours.can_do(part):
        pytest.skip(f"this server does not have {NEEDS[part].upper().replace('|', ' ')}")
    expected = theirs.output(script, part)
    assert expected and not any(line.startswith('["failed"') for line in expected), expected
    assert ours.output(script, part) == expected
