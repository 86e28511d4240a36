"""redis-py's own tests: what passes with a redis-server 8 and needs no missing type passes with Headrace."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest
import redis

from clients import redispy_suite
from clients.redispy_suite import Results
from support.headrace_server import headrace_server
from support.redis_programs import PACKAGED
from support.redis_server import redis_server

# A command in one of these categories of redis-server needs a type that Headrace does not have.
MISSING_TYPES = {"@list", "@set", "@sortedset", "@hash", "@geo", "@bitmap", "@hyperloglog"}
UNKNOWN = re.compile(r"unknown (?:command|subcommand) '([\w-]+)'|(?:command|modifier) '[+-]([\w|]+)'")
EXCEPTIONS = Path(__file__).with_name("redispy_exceptions.txt")
OLDER = "Redis version required"


def raw(port: int, *words: str) -> object:
    """A reply as it is sent."""
    with redis.Redis(port=port, protocol=2, decode_responses=True) as client:
        client.response_callbacks.clear()
        return client.execute_command(*words)


def exceptions(port: int) -> list[tuple[str, str]]:
    """Return the pattern and the command of each exception that applies; "-" stands for any failure."""
    found = []
    for line in EXCEPTIONS.read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, _, rest = line.partition(" | ")
            command = rest.rpartition(" | ")[0].strip()
            reply = raw(port, "COMMAND", "INFO", command) if command != "-" else [None]
            assert isinstance(reply, list)
            if reply[0] is None:
                found.append((pattern.strip(), command))
    return found


class Differences:
    """The tests that pass with a redis-server and not with ours, without those that are permitted."""

    def __init__(self, ours: int, theirs: int) -> None:
        self.theirs = theirs
        self.exceptions = exceptions(ours)
        with redis.Redis(port=ours) as client:
            self.version = client.info("server")["redis_version"]

    def find(self, ours: Results, theirs: Results) -> dict[str, str]:
        """Return the messages of those tests by ID."""
        passed = [name for name, (outcome, _) in theirs.items() if outcome == "passed"]
        differing = {name: ours.get(name, ["missing", "not run"]) for name in passed}
        return {
            name: message.strip().splitlines()[-1][:300]
            for name, (outcome, message) in differing.items()
            if outcome != "passed" and not self.is_permitted(name, message)
        }

    def is_permitted(self, name: str, message: str) -> bool:
        if OLDER in message and tuple(map(int, self.version.split("."))) < (8, 2):
            return True
        named = [(first or second).lower() for first, second in UNKNOWN.findall(message)]
        if any(self.needs_missing_type(command) for command in named):
            return True
        for pattern, command in self.exceptions:
            last = command.rpartition("|")[2]
            explains = command == "-" or last in named
            if explains and fnmatch.fnmatch(name, pattern):
                return True
        return False

    def needs_missing_type(self, command: str) -> bool:
        reply = raw(self.theirs, "COMMAND", "INFO", command.partition("|")[0])
        return isinstance(reply, list) and bool(reply[0]) and bool(MISSING_TYPES & set(reply[0][6]))


@pytest.mark.slow
@pytest.mark.whole
def test_what_passes_with_redis_passes_with_headrace(tmp_path: Path) -> None:
    folder = redispy_suite.fetch()
    options = ("--enable-debug-command", "yes")
    with redis_server(None, *options, kind=PACKAGED) as theirs, headrace_server(None, *options) as ours:
        files = redispy_suite.files(folder)
        started = [(redispy_suite.start(folder, p, tmp_path / f"{p}", files), p) for p in (ours, theirs)]
        found = {port: redispy_suite.finish(process, tmp_path / f"{port}") for process, port in started}
        assert len(found[theirs]) > 2000
        differences = Differences(ours, theirs)
        differing = differences.find(found[ours], found[theirs])
        if differing:  # again, alone: a busy machine makes some fail
            again = redispy_suite.start(folder, ours, tmp_path / "again", list(differing))
            found[ours] |= redispy_suite.finish(again, tmp_path / "again")
            differing = differences.find(found[ours], found[theirs])
        listed = "\n".join(f"{name}: {message}" for name, message in differing.items())
        assert not differing, f"{len(differing)} tests pass with redis-server only:\n{listed}"
