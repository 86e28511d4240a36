"""Attempts to get past a password and past the rules for a user, on a real server: none may change anything.

What is compared before and after is DEBUG DIGEST, of all data.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.lock import Lock

from headrace.commands.spec import Command
from headrace.commands.table import COMMANDS
from headrace.errors import CommandError
from headrace.pipeline.trimming.trim_streams import TRIM_SCRIPT as TRIM
from stress.real_server import RealServer
from support.redis_server import redis_server
from support.speaking import Client
from support.waiting import wait_until

pytestmark = pytest.mark.whole

RELEASE = Lock.LUA_RELEASE_SCRIPT
ROWS = [row for command in COMMANDS for row in command.unique_subcommands() or [command]]
CATEGORIES = sorted({category for row in ROWS for category in row.categories})
STRANGERS_MAY = {b"auth", b"hello", b"quit", b"reset"}
ENDS_THE_TALK = {b"quit", b"reset", b"subscribe", b"psubscribe", b"monitor"}


def words(row: Command, key: str = "ok:1") -> list[bytes | str]:
    """A request of the row's arity; keys, and whatever else it takes, are `key`."""
    if row.name == b"xread":
        return ["XREAD", "STREAMS", key, "ok:2", "0", "0"]
    if row.name == b"xreadgroup":
        return ["XREADGROUP", "GROUP", "g", "c", "STREAMS", key, "ok:2", ">", ">"]
    if row.name in (b"eval", b"evalsha", b"eval_ro", b"evalsha_ro", b"fcall", b"fcall_ro"):
        return [row.name, "return 1", "1", key]
    if row.name == b"msetex":
        return ["MSETEX", "1", key, "v"]
    named = row.name.split(b"|")
    return [*named, *[key] * (max(abs(row.arity) - len(named), 1 if row.arity < 0 else 0))]


class Place:
    """A server with data, its operator, and users who try."""

    def __init__(self, server: RealServer) -> None:
        self.server = server
        self.admin = server.client()
        self.admin.ask("FLUSHALL")
        self.admin.ask("ACL DELUSER eve eva root")
        for key in ("ok:1", "ok:2", "no:1"):
            for n in range(1, 6):
                self.admin.request("XADD", key, f"{n}-1", "f", "v")
            self.admin.request("XGROUP", "CREATE", key, "g", "0")
        self.admin.request("SET", "ok:text", "v")
        self.admin.request("SET", "no:text", "v")
        self.before = self.digest()

    def digest(self) -> object:
        """Of all data."""
        return self.admin.ask("DEBUG DIGEST")

    def user(self, name: str, *rules: str) -> Client:
        """A connection of a new user with these rules."""
        assert self.admin.request("ACL", "SETUSER", name, "reset", "on", "nopass", *rules) == "OK"
        client = self.server.client()
        assert client.request("AUTH", name, "x") == "OK"
        return client


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RealServer]:
    running = RealServer(
        tmp_path_factory.mktemp("server"), "--enable-debug-command", "yes", "--appendonly", "no"
    )
    yield running
    running.kill()


@pytest.fixture
def place(server) -> Place:
    return Place(server)


def is_denied(answer: object) -> bool:
    """Whether it says so."""
    return isinstance(answer, CommandError) and str(answer).removeprefix(
        "EXECABORT Transaction discarded because of: "
    ).startswith("NOPERM ")


# A stranger.


def raw(port: int, request: list[bytes | str]) -> object:
    """What a stranger is answered, on a connection of his own."""
    with Client.to(port) as client:
        try:
            return client.request(*request)
        except EOFError:
            return "closed"


@pytest.fixture
def real_redis():
    """The port of a redis-server with a password."""
    with redis_server(None, "--requirepass", "secret", "--enable-debug-command", "yes") as port:
        yield port


def test_a_stranger_is_told_what_redis_tells_him_whatever_he_asks(launch, real_redis):
    server = launch("--requirepass", "secret", "--enable-debug-command", "yes")
    refused = unknown = 0
    for row in ROWS:
        if row.run is None:
            continue
        ours, theirs = raw(server.port, words(row)), raw(real_redis, words(row))
        if str(theirs).startswith("ERR MODULE command not allowed"):  # here the password comes first
            theirs = "NOAUTH Authentication required."
        if str(theirs).startswith(("ERR unknown", "ERR wrong number")):  # newer than that redis-server
            unknown += 1
            theirs = "NOAUTH Authentication required."
        if str(theirs) == "EXECABORT Transaction discarded because of: NOAUTH Authentication required.":
            theirs = ours  # EXEC: both refuse
        assert str(ours) == str(theirs), row.name
        refused += "NOAUTH" in str(ours)
    assert refused >= len([row for row in ROWS if row.run is not None]) - len(STRANGERS_MAY)
    assert unknown < 25
    for attempt in (
        ["HELLO", "3"],
        ["HELLO", "3", "SETNAME", "x"],
        ["HELLO", "3", "AUTH", "default", "wrong"],
        ["AUTH", "wrong"],
        ["AUTH", "default", "wrong"],
        ["AUTH", "nobody", "secret"],
        ["AUTH", ""],
        ["auth", "default", "secret\0"],
        ["RESET"],
        ["CONFIG"],
        ["NOSUCH"],
        ["HELLO", "99"],
    ):
        ours, theirs = raw(server.port, attempt), raw(real_redis, attempt)
        assert str(ours)[:50] == str(theirs)[:50], attempt  # 8 ends some texts otherwise than 7.0
    with Client.to(server.port) as client:  # none of which makes him somebody
        for attempt in (
            ["HELLO", "3", "AUTH", "default", "x"],
            ["RESET"],
            ["AUTH", "x"],
            ["MULTI"],
            ["EXEC"],
        ):
            client.request(*attempt)
        assert str(client.ask("GET k")).startswith("NOAUTH")


# A user without a category.


@pytest.mark.parametrize("category", CATEGORIES)
def test_nobody_runs_a_command_of_a_category_that_he_has_not(place, category: str):
    client = place.user("eve", "+@all", f"-@{category}", "~*", "&*")
    rows = [row for row in ROWS if category in row.categories and row.run is not None]
    rows = [row for row in rows if row.name not in STRANGERS_MAY]  # they ask for nothing but who he is
    assert rows
    for row in rows:
        for spelt in (row.name, row.name.upper()):
            request = [*spelt.split(b"|"), *words(row)[row.name.count(b"|") + 1 :]]
            assert is_denied(client.request(*request)), request
    for row in rows:  # nor may he queue it
        if client.ask("MULTI") == "OK":
            if row.name not in (b"multi", b"exec", b"discard", b"watch"):
                answer = client.request(*words(row))
                assert is_denied(answer) or "not allowed inside a transaction" in str(answer), row.name
            client.ask("DISCARD")
    assert place.digest() == place.before


@pytest.mark.parametrize("category", CATEGORIES)
def test_what_was_queued_before_the_rule_does_not_run_after_it(place, category: str):
    client = place.user("eve", "+@all", "~*", "&*")
    rows = [
        row
        for row in ROWS
        if category in row.categories
        and row.run is not None
        and row.queueable
        and "no_multi" not in row.flags
    ]
    rows = [row for row in rows if row.name not in ENDS_THE_TALK | {b"auth", b"hello", b"debug", b"watch"}]
    assert client.ask("MULTI") == "OK"
    queued = [row for row in rows if client.request(*words(row)) == "QUEUED"]
    assert len(queued) == len(rows)
    assert place.admin.request("ACL", "SETUSER", "eve", f"-@{category}") == "OK"
    answers = client.ask("EXEC")
    if isinstance(answers, list):
        assert len(answers) == len(queued)
        assert all(str(one).startswith("NOPERM ACLs rules changed") for one in answers), answers
    else:
        assert is_denied(answers)  # EXEC itself is of the category
    assert place.digest() == place.before


# A user of some keys.


def test_no_command_touches_a_key_that_is_not_his_in_whatever_place(place):
    client = place.user("eve", "+@all", "~ok:*", "&*")
    tried = 0
    for row in ROWS:
        request = words(row, "ok:1")
        if row.run is None or not row.has_keys:
            continue
        positions = [n for n, word in enumerate(request) if word == "ok:1"][
            : 2 if row.name != b"xread" else 1
        ]
        keys = place.admin.request("COMMAND", "GETKEYS", *request)
        assert isinstance(keys, list) or "Invalid" in str(keys), (request, keys)
        where = positions[: len(keys)] if isinstance(keys, list) else positions[:1]
        for at in where:
            attempt = list(request)
            attempt[at] = "no:1"
            assert str(client.request(*attempt)) == "NOPERM No permissions to access a key", attempt
            tried += 1
    assert tried > 60
    for line in (
        "XREAD STREAMS ok:1 no:1 0 0",
        "XREAD COUNT 1 STREAMS ok:1 ok:2 no:1 0 0 0",
        "XREAD BLOCK 1 STREAMS no:1 $",
        "XREADGROUP GROUP g c STREAMS ok:1 ok:2 no:1 > > >",
        "MSET ok:a 1 ok:b 2 no:c 3",
        "MGET ok:1 ok:2 no:1",
        "DEL ok:1 no:1",
        "EXISTS no:1 ok:1",
        "COPY ok:text no:text REPLACE",
        "COPY no:text ok:text REPLACE",
        "RENAME ok:1 no:2",
        "RENAME no:1 ok:9",
        "OBJECT ENCODING no:1",
        "MEMORY USAGE no:1",
        "XINFO STREAM no:1 FULL",
        "XGROUP CREATE no:1 h 0",
        "XGROUP DESTROY no:1 g",
        "DUMP no:1",
        "EVAL script 2 ok:1 no:1",
    ):
        assert str(client.ask(line)) == "NOPERM No permissions to access a key", line
    assert place.digest() == place.before


GLOBS = [
    ("a", [b"a"], [b"", b"A", b"aa", b"a\0", b"a\n", b" a"]),
    ("a?", [b"ab", b"a\0", b"a\n", b"a?"], [b"a", b"abc"]),
    (r"a\*b", [b"a*b"], [b"ab", b"axb", rb"a\*b"]),
    (r"a\?", [b"a?"], [b"ab", b"a"]),
    ("[a-c]x", [b"ax", b"cx"], [b"dx", b"-x", b"x"]),
    ("[^a]x", [b"bx", b"\0x"], [b"ax", b"x"]),
    (r"[\]]", [b"]"], [b"\\", b"["]),
    ("k:*:end", [b"k::end", b"k:a:b:end", b"k:\n:end"], [b"k:end", b"k:a:end:", b"xk:a:end"]),
    ("", [b""], [b"a"]),
    ("*secret", [b"secret", b"my\0secret"], [b"secrets"]),
]


@pytest.mark.parametrize(("glob", "his", "not_his"), GLOBS, ids=[glob for glob, _, _ in GLOBS])
def test_a_glob_of_keys_means_what_it_says(place, glob: str, his: list[bytes], not_his: list[bytes]):
    client = place.user("eve", "+set", "+del", f"~{glob}")
    for key in his:
        assert client.request("SET", key, "v") == "OK", key
        assert client.request("DEL", key) == 1
    for key in not_his:
        assert str(client.request("SET", key, "v")) == "NOPERM No permissions to access a key", key
    assert place.digest() == place.before


def test_who_may_only_read_a_key_changes_nothing_of_it(place):
    client = place.user("eve", "+@all", "%R~*", "&*")
    assert client.ask("GET ok:text") == b"v"
    assert client.ask("XLEN ok:1") == 5
    writes = [row for row in ROWS if row.write and row.first_key and row.run is not None]
    for row in writes:
        assert is_denied(client.request(*words(row))), row.name
    for line in (
        "SET ok:text x GET",
        "GETDEL ok:text",
        "GETEX ok:text EX 1",
        "COPY ok:text ok:x",
        "EXPIRE ok:1 1",
    ):
        assert is_denied(client.ask(line)), line
    assert len(writes) > 40 and place.digest() == place.before


# Other ways.


def test_a_waiter_gets_nothing_that_was_taken_from_him(place):
    reading = place.user("eve", "+@all", "~*")
    grouped = place.user("eva", "+@all", "~*")
    reading.send(b"XREAD BLOCK 0 STREAMS ok:1 no:1 $ $\r\n")
    grouped.ask("XREADGROUP GROUP g c STREAMS no:1 >")
    grouped.send(b"XREADGROUP GROUP g c BLOCK 0 STREAMS no:1 >\r\n")
    wait_until(lambda: place.admin.info("clients")["blocked_clients"] == "2")
    place.admin.ask("ACL SETUSER eve resetkeys ~ok:*")
    place.admin.ask("ACL SETUSER eva -xreadgroup")
    place.admin.ask("XADD no:1 6-1 f secret")
    assert str(reading.reply()) == "NOPERM No permissions to access a key"
    assert str(grouped.reply()) == "NOPERM User eva has no permissions to run the 'xreadgroup' command"
    assert place.admin.ask("XPENDING no:1 g")[0] == 5  # and nothing was delivered


def test_nobody_becomes_another_by_the_way(place):
    place.admin.ask("ACL SETUSER root on >secret ~* &* +@all")
    client = place.user("eve", "+multi", "+exec", "+get", "+auth", "+hello", "+reset", "~ok:*")
    place.admin.ask("CONFIG SET requirepass other")  # who comes from now on must say who he is
    assert client.ask("MULTI") == "OK"
    assert client.ask("AUTH root wrong") == "QUEUED"
    assert is_denied(client.ask("SET ok:1 v"))  # it is he who queues, whoever he will be
    assert str(client.ask("EXEC")).startswith("EXECABORT")
    assert str(client.ask("AUTH root wrong")).startswith("WRONGPASS")
    assert is_denied(client.ask("SET ok:1 v"))
    assert str(client.ask("HELLO 3 AUTH root wrong")).startswith("WRONGPASS")
    assert client.ask("GET ok:text") == b"v" and is_denied(client.ask("GET no:text"))
    assert client.ask("RESET") == "RESET"
    # RESET makes him a stranger, not the default user.
    assert str(client.ask("GET ok:text")).startswith("NOAUTH")
    assert str(client.ask("HELLO 3")).startswith("NOAUTH")
    assert place.digest() == place.before
    place.admin.request("CONFIG", "SET", "requirepass", "")


def test_scripts_are_asked_for_what_they_do(place):
    trim = place.admin.request("SCRIPT", "LOAD", TRIM)
    lock = place.admin.request("SCRIPT", "LOAD", RELEASE)
    place.admin.request("SET", "ok:lock", "token")
    place.admin.ask("XGROUP DESTROY ok:1 g")
    before = place.digest()
    client = place.user("eve", "+@all", "-xtrim", "-del", "~ok:*")
    for attempt in (
        ["EVALSHA", trim, "1", "ok:1", "4-1", "2-1", "=", "0"],
        ["EVAL", TRIM, "1", "ok:1", "4-1", "2-1", "=", "0"],
        ["EVALSHA", lock, "1", "ok:lock", "token"],
        ["EVAL", RELEASE, "1", "ok:lock", "token"],
        ["EVAL", RELEASE, "1", "no:text", "v"],
        ["EVAL", "return redis.call('del', KEYS[1])", "1", "ok:lock"],
    ):
        assert isinstance(client.request(*attempt), CommandError), attempt
    assert place.digest() == before
    place.admin.ask("ACL SETUSER eve +xtrim +del")  # and it is the rules that kept him from it
    assert client.request("EVALSHA", trim, "1", "ok:1", "4-1", "2-1", "=", "0") == 3
    assert client.request("EVALSHA", lock, "1", "ok:lock", "token") == 1
