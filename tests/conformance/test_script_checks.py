"""What a script may not do now is rejected as by redis-servers, with each set of flags.

The states: memory is full, the server is a replica, stale or not, a snapshot has failed, replicas are
missing, and the user may not run the command.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from support.headrace_server import headrace_server
from support.redis_programs import INSTALLED, KINDS, redis_program, version_of
from support.redis_server import redis_server
from support.waiting import wait_until

pytest.importorskip("lupa.luajit21")

BODIES = {
    "set": "return redis.call('set','k','v')",
    "caught_set": "return redis.pcall('set','k','v')",
    "xadd": "return redis.call('xadd','s','1-1','a','b') and redis.call('del','s')",
    "get": "return redis.call('get','k')",
    "del": "return redis.call('del','q')",
    "del_and_set": "redis.call('del','q') return redis.call('set','k','v')",
    "get_and_set": "redis.call('get','q') return redis.call('set','k','v')",
    "two_caught_sets": "redis.pcall('set','k','v') return redis.pcall('set','k2','v')",
    "xack": "return redis.call('xack','s','g','1-1')",
    "publish": "return redis.call('publish','c','m')",
    "ping": "return redis.call('ping')",
    "info": "return #redis.call('info') > 0",
}
FLAGS = ["", "no-writes", "allow-oom", "allow-stale", "no-writes,allow-stale", "allow-oom,allow-stale"]
FUNCTION = "redis.register_function{function_name='%s_%d',callback=function() %s end,flags={%s}}\n"


def library() -> str:
    """Every body with every set of flags."""
    lines = ["#!lua name=l\n"]
    for name, body in BODIES.items():
        for n, flags in enumerate(FLAGS):
            quoted = ",".join(f"'{flag}'" for flag in flags.split(",") if flag)
            lines.append(FUNCTION % (name, n, body, quoted))
    return "".join(lines)


def requests() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, body in BODIES.items():
        found += [(word, body, "0") for word in ("EVAL", "EVAL_RO")]
        for n, flags in enumerate(FLAGS):
            found += [(word, f"#!lua flags={flags}\n{body}", "0") for word in ("EVAL", "EVAL_RO")]
            found += [(word, f"{name}_{n}", "0") for word in ("FCALL", "FCALL_RO")]
    return found


def replies(port: int, user: str | None) -> list[str]:
    """The reply to each request, an error with its kind."""
    connection = redis.Connection(port=port, protocol=2)
    connection.connect()
    found = []
    for words in [("AUTH", user, "x")] * bool(user) + requests():
        connection.send_command(*words)
        try:
            found.append(repr(connection.read_response()))
        except redis.RedisError as error:
            found.append(f"{type(error).__name__} {error}")
    connection.disconnect()
    return found


def fill_memory(client: redis.Redis) -> None:
    client.config_set("maxmemory", 1)


def miss_replicas(client: redis.Redis) -> None:
    client.config_set("min-replicas-to-write", 1)


def fail_snapshot(client: redis.Redis) -> None:
    client.config_set("save", "3600 100000")
    directory = Path(client.config_get("dir")["dir"])
    (directory / "dump.rdb" / "full").mkdir(parents=True)  # a file cannot replace it
    client.bgsave()
    wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "the failure")


def restrict_user(client: redis.Redis) -> None:
    client.acl_setuser(
        "ann", enabled=True, nopass=True, keys=["k*"], commands=["+@scripting", "+get", "+set"]
    )


STATES: dict[str, Callable[[redis.Redis], None]] = {
    "out of memory": fill_memory,
    "too few replicas": miss_replicas,
    "failed snapshot": fail_snapshot,
    "restricted user": restrict_user,
}


@contextlib.contextmanager
def server(kind: str, directory: Path) -> Iterator[int]:
    directory.mkdir()
    opened = headrace_server(directory) if kind == "ours" else redis_server(directory, kind=kind)
    with opened as port:
        yield port


def in_8(text: str) -> str:
    """A reply of Redis 7.0 as Redis 8 words it: 7.0 does not say which command or key it is."""
    reason = r"(The user executing the script can't|ACL failure in script:).*?(?= script: \w+, on |$)"
    return re.sub(reason, "ACL failure", text)


def assert_same(kind: str, theirs: list[str], ours: list[str]) -> None:
    if version_of(redis_program(kind)) < (7, 2):
        theirs, ours = [in_8(text) for text in theirs], [in_8(text) for text in ours]
    for words, expected, reply in zip([*requests()][-len(ours) :], theirs, ours, strict=True):
        assert reply == expected, words


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", STATES)
def test_what_may_not_run_now_is_rejected_the_same(tmp_path, kind, state):
    found = []
    for one in (kind, "ours"):
        with server(one, tmp_path / one) as port, redis.Redis(port=port, decode_responses=True) as client:
            client.function_load(library())
            client.set("q", "1")
            STATES[state](client)
            found.append(replies(port, "ann" if state == "restricted user" else None))
            client.config_set("save", "")  # else it could not end
    if state == "restricted user":
        found = [one[1:] for one in found]
    assert_same(kind, *found)


def link(client: redis.Redis) -> str:
    return str(client.info("replication").get("master_link_status"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_may_not_run_on_a_replica_is_rejected_the_same(tmp_path, kind):
    """First while it has its data, then while it is stale."""
    found: dict[str, list[list[str]]] = {}
    for one in (kind, "ours"):
        with contextlib.ExitStack() as stack:
            with redis_server(kind=INSTALLED) as primary:
                with redis.Redis(port=primary) as client:
                    client.function_load(library())
                port = stack.enter_context(server(one, tmp_path / one))
                replica = stack.enter_context(redis.Redis(port=port, decode_responses=True))
                replica.config_set("replica-serve-stale-data", "no")
                replica.replicaof("127.0.0.1", primary)
                wait_until(lambda replica=replica: link(replica) == "up", "the link")
                found[one] = [replies(port, None)]
            wait_until(lambda replica=replica: link(replica) == "down", "the end of the link")
            found[one].append(replies(port, None))
    for theirs, ours in zip(found[kind], found["ours"], strict=True):
        assert_same(kind, theirs, ours)
