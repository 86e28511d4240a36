"""DEBUG: permissions, digests, and the calls of its subcommands to server and engine."""

import random

import pytest

from headrace.commands.server_interface import ServerInterface
from headrace.engine.engine import Engine
from support.portrait import alive, portrait

ZEROS = "0" * 40


class Trusting(ServerInterface):
    """A server that allows DEBUG for every client, and records its calls."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def debug_allowed(self, session):
        return True

    def sleep(self, seconds):
        self.asked.append(("sleep", seconds))

    def reload(self, now_ms, flush, save, merge):
        self.asked.append(("reload", flush, save, merge))

    def reload_log(self, now_ms):
        self.asked.append(("reload_log",))


@pytest.fixture
def debugging(talk):
    """A conversation with an engine that allows DEBUG."""
    talk.server = Trusting()
    talk.engine = Engine(server=talk.server)
    return talk


def test_it_is_refused_unless_allowed(talk):
    assert talk("DEBUG HELP").startswith("-ERR DEBUG command not allowed.")
    assert talk("DEBUG nonsense").startswith("-ERR DEBUG command not allowed.")


def test_the_host_is_asked(debugging):
    for line in (
        "DEBUG RELOAD",
        "DEBUG reload NOSAVE merge NOFLUSH",
        "DEBUG LOADAOF",
        "DEBUG SLEEP 0.25",
        "DEBUG SLEEP -1",
    ):
        assert debugging(line) == "OK"
    assert debugging("DEBUG RELOAD NOW").startswith("-ERR DEBUG RELOAD only supports")
    assert debugging.server.asked == [
        ("reload", True, True, False),
        ("reload", False, False, True),
        ("reload_log",),
        ("sleep", 0.25),
        ("sleep", 0.0),
    ]


@pytest.mark.parametrize(
    "line", ["", " k", " SLEEP", " SLEEP 1 2", " OBJECT", " DIGEST-VALUE", " JMAP", " HELP x"]
)
def test_what_is_not_there_is_refused(debugging, line):
    assert debugging("DEBUG" + line).startswith(("-ERR unknown subcommand", "-ERR wrong number"))


def test_help_names_every_subcommand(debugging):
    told = debugging("DEBUG HELP")
    for name in ("DIGEST", "LOADAOF", "OBJECT key", "RELOAD [MERGE] [NOFLUSH] [NOSAVE]", "SLEEP seconds"):
        assert name in told


def test_attributes_and_push_messages_are_sent_in_resp3_only(debugging):
    assert debugging("DEBUG PROTOCOL push") == "-ERR RESP2 is not supported by this command"
    assert debugging("DEBUG PROTOCOL attrib") == "Some real reply following the attribute"
    debugging("HELLO 3")
    text = b"$39\r\nSome real reply following the attribute\r\n"
    assert debugging.raw("DEBUG PROTOCOL attrib") == (
        b"|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n" + text
    )
    text = b"$40\r\nSome real reply following the push reply\r\n"
    assert debugging.raw("DEBUG PROTOCOL push") == text + b">2\r\n$16\r\nserver-cpu-usage\r\n:42\r\n"


def test_made_up_error_codes_are_counted_by_code_only_up_to_a_limit(debugging):
    debugging.words("DEBUG", "ERROR", "X" * 65)
    for number in range(200):
        assert debugging.words("DEBUG", "ERROR", f"CODE{number} text") == f"-CODE{number} text"
    debugging.words("DEBUG", "ERROR", "CODE0")
    errors = debugging.engine.stats.errors_by_code
    assert len(errors) == 128 and errors[b"CODE0"] == 2 and b"CODE199" not in errors
    assert debugging.engine.stats.error_reply_count == 202


def test_a_line_about_a_value(debugging):
    debugging("SET k 12345")
    assert " encoding:int serializedlength:3 " in debugging("DEBUG OBJECT k")
    assert debugging("DEBUG OBJECT none") == "-ERR no such key"


def test_patterns(debugging):
    assert debugging("DEBUG STRINGMATCH-LEN a*b?d axxbcd") == 1
    assert debugging("DEBUG STRINGMATCH-LEN a*b?d axxbc") == 0


def test_expired_keys_are_deleted_in_the_background_or_not(debugging):
    keyspace = debugging.engine.keyspace
    debugging("DEBUG SET-ACTIVE-EXPIRE 0")
    debugging("SET k v PX 10")
    debugging.tick(5000)
    assert keyspace.expired_count == 0
    assert debugging.engine.next_deadline() > 10**15
    assert debugging("GET k") is None
    assert keyspace.expired_count == 1
    debugging("SET k v PX 10")
    debugging("DEBUG SET-ACTIVE-EXPIRE 1")
    debugging.tick(9000)
    assert keyspace.expired_count == 2


# ---- digests

CHANGES = [
    "SET b 1",
    "SET a 2",
    "SELECT 1",
    "PEXPIREAT a 99999",
    "RENAME a c",
    "XADD s 5-1 f v",
    "XADD s 5-1 f w",
    "XDEL s 1-1",
    "XTRIM s MAXLEN 1",
    "XSETID s 9-9",
    "XGROUP CREATE s h 0",
    "XGROUP SETID s g 1-1",
    "XGROUP CREATECONSUMER s g z",
    "XREADGROUP GROUP g y STREAMS s >",
    "XREADGROUP GROUP g y COUNT 1 STREAMS s 0",
    "XCLAIM s g y 0 1-1",
    "XCLAIM s g x 0 1-1 RETRYCOUNT 7",
    "XACK s g 1-1",
    "XNACK s g FAIL IDS 1 1-1",
    "XADD s IDMP p i * f v",
    "XADD s IDMP p j * f v",
]


def stock(talk):
    for line in ("SET a 1", "XADD s 1-1 f v", "XADD s 1-2 f v", "XADD s 1-3 f v", "XGROUP CREATE s g 0"):
        talk(line)
    talk("XREADGROUP GROUP g x COUNT 2 STREAMS s >")


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_shows_in_the_digest(debugging, change):
    stock(debugging)
    before = debugging("DEBUG DIGEST")
    answer = debugging(change)
    if change == "SELECT 1":
        debugging("SET a 1")
    else:
        assert not str(answer).startswith("-")
    assert debugging("DEBUG DIGEST") != before


def test_an_empty_keyspace_has_no_digest_to_speak_of(debugging):
    assert debugging("DEBUG DIGEST") == ZEROS
    debugging("SET k v PX 10")
    debugging.now += 10
    assert debugging("DEBUG DIGEST") == ZEROS
    assert debugging("DEBUG DIGEST-VALUE k k") == [ZEROS, ZEROS]


def test_values_have_the_same_digest_under_any_key(debugging):
    stock(debugging)
    debugging("COPY s t DB 3")
    debugging("SET b 2")
    debugging("DECR b")
    one, other = debugging("DEBUG DIGEST-VALUE a b")
    assert one == other != ZEROS
    (stream,) = debugging("DEBUG DIGEST-VALUE s")
    debugging("SELECT 3")
    assert debugging("DEBUG DIGEST-VALUE t") == [stream]


@pytest.mark.parametrize("seed", range(3))
def test_two_digests_are_the_same_exactly_when_the_portraits_are(debugging, seed):
    chance = random.Random(seed)
    debugging.engine.keyspace.settings.stream_node_max_entries = 3
    digests, portraits = {}, {}
    for _ in range(400):
        debugging.now += chance.choice([0, 1, 1000])
        debugging.tick(debugging.now)
        if chance.random() < 0.05:
            debugging("FLUSHALL")
        if chance.random() < 0.2:
            stock(debugging)
        debugging(chance.choice([change for change in CHANGES if not change.startswith("SELECT")]))
        keyspace = debugging.engine.keyspace
        digest = debugging("DEBUG DIGEST")
        seen = repr(alive(portrait(keyspace, times=False, ties=False), debugging.now))
        assert digests.setdefault(seen, digest) == digest
        assert portraits.setdefault(digest, seen) == seen
    assert len(digests) > 50


@pytest.mark.parametrize("seed", range(5))
def test_another_history_of_the_same_data_has_the_same_digest(seed):
    """Keys in another order, entries packed into other nodes, tombstones, consumers seen at other times."""
    chance = random.Random(seed)
    ids = [f"{n}-0" for n in range(1, 80)]
    deleted = chance.sample(ids[:-1], 30)
    digests = []
    for most in (7, 1000):
        engine = Engine(server=Trusting())
        engine.keyspace.settings.stream_node_max_entries = most
        session = engine.create_session()
        lines = [f"SET k{n} {n}" for n in range(20)]
        chance.shuffle(lines)
        lines += [f"XADD s {i} f v{i}" for i in ids]
        lines += ["XGROUP CREATE s g 0", "XGROUP CREATE s h $"]
        lines += ["XREADGROUP GROUP g c COUNT 10 STREAMS s >"]
        lines += [f"XDEL s {i}" for i in sorted(deleted, key=lambda _: chance.random())]
        if most == 7:
            lines += ["XGROUP CREATE s late 5-0", "XGROUP DESTROY s late", "SET gone 1", "DEL gone"]
        now = 1000
        for line in lines:
            engine.execute(session, line.encode().split(), now)
        now += most
        engine.execute(session, b"XREADGROUP GROUP h c STREAMS s 0".split(), now)
        session.reply.take()
        engine.execute(session, [b"DEBUG", b"DIGEST"], now)
        digests.append(session.reply.take())
    assert digests[0] == digests[1]
    assert len(digests[0]) == len(b"+\r\n") + 40
