"""What a replica does with its primary's commands."""

from __future__ import annotations

import logging
from unittest.mock import ANY

import pytest

from headrace.engine.engine import Engine
from headrace.persistence.crc64 import crc64
from headrace.persistence.rule_records import rule_record
from headrace.replication.stream_applier import CannotApply, StreamApplier
from headrace.resp.reply_parser import INCOMPLETE, ReplyParser
from headrace.resp.request import request
from replication.opened_reader import opened_reader
from support.cold_support import RunsInMemory

NOW = 1_800_000_000_000


class Replica:
    """An engine that applies commands, written as lines of words."""

    def __init__(self, skip_foreign: bool = False) -> None:
        self.engine = Engine()
        self.engine.set_effect_recording(True)
        self.applier = StreamApplier(self.engine, skip_foreign)
        self.client = self.engine.create_session()

    def apply(self, *lines: str | bytes | list[bytes], now: int = NOW) -> None:
        commands = [request(*(line if isinstance(line, list) else words(line))) for line in lines]
        self.applier.apply(opened_reader(b"".join(commands)), now)

    def ask(self, line: str, now: int = NOW) -> object:
        self.engine.execute(self.client, words(line), now)
        return self.reply()

    def reply(self) -> object:
        parser = ReplyParser()
        parser.feed(self.client.reply.take())
        return parser.next()

    def effects(self) -> list[tuple[int, bytes]]:
        return [(database, b" ".join(argv)) for database, argv in self.engine.effects.take()]


def words(line: str | bytes) -> list[bytes]:
    return (line if isinstance(line, bytes) else line.encode()).split()


def group_of(replica: Replica) -> dict[bytes, object]:
    reply = replica.ask("XINFO GROUPS s")
    assert isinstance(reply, list)
    return dict(zip(reply[0][::2], reply[0][1::2], strict=True))


PROPAGATED = """
    SELECT 0
    SET a 1 PXAT 1900000000000
    SET a 2 KEEPTTL
    INCRBY a 3
    PEXPIREAT a 1900000000001
    PERSIST a
    SET f 10.5 KEEPTTL
    SETRANGE f 1 9
    MSET b 1 c 2
    COPY b d
    RENAME c e
    MOVE e 1
    UNLINK d
    DEL b
    XADD s 1-0 f v
    XADD s NOMKSTREAM 2-0 f v
    XADD s MAXLEN = 2 3-0 f v
    XADD s MINID = 1-0 LIMIT 10 4-0 f v
    XADD s MAXLEN = 3 LIMIT 0 5-0 f v
    XADD none NOMKSTREAM 1-0 f v
    XTRIM s MAXLEN = 4 LIMIT 0
    XGROUP CREATE s g 0 ENTRIESREAD 2
    XGROUP CREATE t g $ MKSTREAM
    XGROUP CREATECONSUMER s g ann
    XCLAIM s g ann 0 3-0 TIME 1700000000000 RETRYCOUNT 4 FORCE JUSTID LASTID 3-0
    XCLAIM s g bob 0 4-0 TIME 1700000000001 RETRYCOUNT 1 FORCE JUSTID LASTID 4-0
    XGROUP SETID s g 4-0 ENTRIESREAD 4
    XACK s g 3-0
    XADD s 6-0 f v
    XADD s 7-0 f v
    XDEL s 6-0
    XDELEX s DELREF IDS 1 7-0
    XACKDEL s g ACKED IDS 1 4-0
    XSETID s 9-0 ENTRIESADDED 20 MAXDELETEDID 7-0
    XGROUP DELCONSUMER s g bob
    XGROUP DESTROY t g
    SWAPDB 0 1
"""


def test_the_forms_that_primaries_send_are_all_applied() -> None:
    replica = Replica()
    replica.apply(*PROPAGATED.strip().splitlines())
    assert replica.applier.failed_commands == {} and replica.applier.skipped_commands == {}
    replica.ask("SELECT 1")
    assert replica.ask("GET a") == b"5" and replica.ask("PTTL a") == -1
    assert replica.ask("GET f") == b"19.5"
    assert replica.ask("XRANGE s - +") == [[b"3-0", [b"f", b"v"]], [b"5-0", [b"f", b"v"]]]
    assert replica.ask("DBSIZE") == 4  # a, f, s and t
    group = group_of(replica)
    assert group[b"last-delivered-id"] == b"4-0" and group[b"entries-read"] == 4 and group[b"pending"] == 0
    replica.ask("SELECT 0")
    assert replica.ask("KEYS *") == [b"e"]
    replica.apply("flushall async")
    assert replica.ask("DBSIZE") == 0


def test_commands_give_the_same_effects_and_transactions_one_group() -> None:
    replica = Replica()
    replica.apply("SELECT 3", "SET a 1", "MULTI", "SET a 2", "SELECT 5", "XADD s 1-0 f v")
    assert replica.effects() == [(3, b"SET a 1")]
    assert replica.applier.database == 3
    replica.apply("EXEC", "SET b 1")
    expected = [b"MULTI", b"SET a 2", b"XADD s 1-0 f v", b"EXEC", b"SET b 1"]
    assert replica.effects() == list(zip([3, 3, 5, 5, 5], expected, strict=True))


def test_a_transaction_that_was_cut_off_is_discarded() -> None:
    replica = Replica()
    replica.apply("SELECT 0", "MULTI", "SELECT 2", "SET a 1")
    replica.applier.discard_transaction()
    replica.apply("MULTI", "SELECT 2", "SET a 2", "EXEC")
    assert replica.applier.database == 2
    replica.ask("SELECT 2")
    assert replica.ask("GET a") == b"2"


def test_the_primary_sees_expired_keys_and_clients_do_not() -> None:
    replica = Replica()
    replica.engine.keyspace.hide_expired = True
    replica.apply(f"SET a 1 PXAT {NOW + 10}")
    assert replica.ask("GET a", NOW + 20) is None
    replica.apply("INCR a", now=NOW + 20)
    assert replica.ask("GET a", NOW + 20) is None
    assert not replica.engine.keyspace.ignore_expiry
    replica.apply("PERSIST a", now=NOW + 30)
    assert replica.ask("GET a", NOW + 30) == b"2"


def test_a_waiter_is_served_between_two_commands_of_the_primary() -> None:
    replica = Replica()
    replica.ask("XREAD BLOCK 0 STREAMS s $")
    replica.apply("XADD s 1-0 f v", "XDEL s 1-0", "XADD s 2-0 f v")
    assert replica.reply() == [[b"s", [[b"1-0", [b"f", b"v"]]]]]


def test_a_transaction_is_seen_by_a_waiter_only_as_a_whole() -> None:
    replica = Replica()
    replica.ask("XREAD BLOCK 0 STREAMS s $")
    replica.apply("MULTI", "XADD s 1-0 f v", "XADD s 2-0 f v", "EXEC")
    assert replica.reply() == [[b"s", [[b"1-0", [b"f", b"v"]], [b"2-0", [b"f", b"v"]]]]]


def test_a_failing_command_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica()
    with caplog.at_level(logging.ERROR, "headrace"):
        replica.apply("XADD s 5-0 f v", "XADD s 4-0 f v", "xadd s 3-0 f v", "SET", "SET k v")
    assert replica.applier.failed_commands == {"XADD": 2, "SET": 1}
    assert [record.getMessage()[:30] for record in caplog.records] == [
        "the primary's XADD fails here:",
        "the primary's SET fails here: ",
    ]
    assert replica.ask("GET k") == b"v"


@pytest.mark.parametrize("line", ["HSET h f v", "EVAL script 0", "XGROUP NEW s g", "SETBIT k 1 1"])
def test_a_command_that_does_not_exist_here_says_what_to_set(line: str) -> None:
    replica = Replica()
    name = line.split()[0]
    with pytest.raises(CannotApply, match=f"has sent {name}.*set replica-skip-foreign-types yes"):
        replica.apply("SET a 1", line, "SET a 2")
    assert replica.ask("GET a") == b"1"


def test_a_transaction_with_an_unknown_command_is_not_begun() -> None:
    replica = Replica()
    with pytest.raises(CannotApply):
        replica.apply("MULTI", "INCR a", "HSET h f v", "EXEC")
    assert replica.ask("GET a") is None


def test_a_database_that_does_not_exist_here_says_what_to_set() -> None:
    with pytest.raises(CannotApply, match="uses the database 20, there are 16 here"):
        Replica().apply("SELECT 20")


def test_a_message_to_a_shard_channel_reaches_the_subscribers_here() -> None:
    replica = Replica()
    replica.ask("HELLO 3")
    replica.ask("SSUBSCRIBE channel")
    replica.apply("SPUBLISH channel hello", "PUBLISH channel other", "SPUBLISH other hello")
    assert replica.reply() == [b"smessage", b"channel", b"hello"]
    assert replica.client.reply.take() == b""


def test_a_client_that_caches_keys_learns_what_the_primary_changes() -> None:
    replica = Replica()
    replica.ask("HELLO 3")
    replica.ask("CLIENT TRACKING ON NOLOOP")
    replica.ask("GET a")
    replica.apply("SET b 1", "SET a 1", "SET a 2")
    assert replica.reply() == [b"invalidate", [b"a"]]
    assert replica.ask("GET a") == b"2"
    replica.apply("MULTI", "INCR a", "XADD s 1-1 f v", "EXEC", "FLUSHDB")
    pushes = []
    parser = ReplyParser()
    parser.feed(replica.client.reply.take())
    while (push := parser.next()) is not INCOMPLETE:
        pushes.append(push)
    assert pushes == [[b"invalidate", [b"a"]], [b"invalidate", None]]


@pytest.mark.parametrize("skip", [False, True])
def test_scripts_and_functions_change_no_keys(skip: bool) -> None:
    replica = Replica(skip)
    replica.apply("FUNCTION FLUSH", "SCRIPT FLUSH", "SET a 1")
    assert replica.ask("GET a") == b"1"
    assert replica.applier.skipped_commands == {"SCRIPT": 1}


def test_keys_of_other_types_are_skipped_and_counted_if_that_is_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replica = Replica(True)
    with caplog.at_level(logging.WARNING, "headrace"):
        replica.apply("HSET h f v", "HSET h f w", "EXPIRE h 5", "RENAME h i", "DEL h", "SET a 1")
        replica.apply("MULTI", "LPUSH l x", "INCR a", "EXEC")
    assert replica.ask("GET a") == b"2" and replica.applier.failed_commands == {}
    assert replica.applier.skipped_commands == {"HSET": 2, "RENAME": 1, "LPUSH": 1}
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    "line",
    [
        "RENAME hash k",
        "COPY hash k REPLACE",
        "SUNIONSTORE k set other",
        "BITOP AND k a b",
        "SORT list STORE k",
    ],
)
def test_a_key_that_a_skipped_command_overwrites_is_removed(line: str) -> None:
    replica = Replica(True)
    replica.apply("SET k old", "SET other kept")
    replica.effects()
    replica.apply(line)
    assert replica.ask("GET k") is None
    assert replica.effects() == [(0, b"DEL k")]
    assert replica.ask("GET other") == b"kept"


def test_a_value_of_another_type_that_is_restored_removes_the_key(
    foreign_payload: bytes,
) -> None:
    replica = Replica(True)
    replica.apply("SET k old", [b"RESTORE", b"k", b"0", foreign_payload, b"REPLACE"])
    assert replica.ask("GET k") is None and replica.applier.skipped_commands == {"RESTORE": 1}
    with pytest.raises(CannotApply, match="unknown type"):
        Replica().apply([b"RESTORE", b"k", b"0", foreign_payload, b"REPLACE"])


def test_a_transaction_that_cannot_be_completed_makes_the_data_torn(foreign_payload: bytes) -> None:
    replica = Replica()
    with pytest.raises(CannotApply):
        replica.apply("MULTI", "INCR a", [b"RESTORE", b"k", b"0", foreign_payload], "EXEC")
    assert replica.applier.is_torn and not replica.engine.keyspace.ignore_expiry
    replica.apply("SET b 1")  # recording has left the transaction
    assert replica.effects()[-1] == (0, b"SET b 1")


def test_entries_that_cannot_be_read_here_make_the_data_torn() -> None:
    replica = Replica()
    replica.engine.keyspace.settings.stream_node_max_entries = 3
    store = RunsInMemory()
    cold = replica.engine.open_cold_storage(store, 1)
    replica.apply(*[f"XADD s {number}-0 f v" for number in range(1, 30)])
    cold.cool_all_to_limit()
    store.stored.clear()
    with pytest.raises(CannotApply, match=r"the primary's XADD fails: COLDERR .* a new copy is needed"):
        replica.apply("XADD s MAXLEN = 28 30-0 f v")
    assert replica.applier.is_torn


@pytest.fixture
def foreign_payload() -> bytes:
    """A hash as Redis 7.0 dumps it."""
    body = b"\x10\x0d\x0d\x00\x00\x00\x02\x00\x81f\x02\x81v\x02\xff\x0a\x00"
    return body + crc64(body).to_bytes(8, "little")


def test_a_copy_of_a_foreign_key_into_another_database_removes_the_key_there() -> None:
    replica = Replica(True)
    replica.apply("SELECT 2", "SET k old", "SELECT 0", "SET k kept", "COPY hash k DB 2 REPLACE")
    assert replica.ask("GET k") == b"kept" and replica.applier.database == 0
    replica.ask("SELECT 2")
    assert replica.ask("GET k") is None


def test_a_delivery_by_redis_7_counts_as_read() -> None:
    replica = Replica()
    replica.applier.counts_deliveries = True
    replica.apply(*[f"XADD s {i}-0 f v" for i in range(1, 6)], "XGROUP CREATE s g 0")
    replica.effects()
    replica.apply(
        "XCLAIM s g ann 0 1-0 TIME 5 RETRYCOUNT 1 FORCE JUSTID LASTID 1-0",
        "MULTI",
        "XCLAIM s g ann 0 2-0 TIME 6 RETRYCOUNT 1 FORCE JUSTID LASTID 2-0",
        "XCLAIM s g ann 0 3-0 TIME 6 RETRYCOUNT 1 FORCE JUSTID LASTID 3-0",
        "EXEC",
        "XCLAIM s g bob 0 2-0 TIME 7 RETRYCOUNT 2 FORCE JUSTID LASTID 3-0",
    )
    assert group_of(replica)[b"entries-read"] == 3
    restarted = Replica()
    restarted.apply(*[f"XADD s {i}-0 f v" for i in range(1, 6)], "XGROUP CREATE s g 0")
    restarted.apply(*[line for _, line in replica.effects()])
    assert group_of(restarted) == group_of(replica)


def test_commands_of_the_primary_are_counted_like_those_of_clients() -> None:
    replica = Replica()
    replica.apply("SET a 1", "XADD s 0-0 f v")
    rows = replica.engine.rows_by_full_name
    assert (rows[b"set"].calls, rows[b"xadd"].calls, rows[b"xadd"].failed_calls) == (1, 1, 1)
    assert replica.engine.stats.command_count == 2


RELEASE = rule_record(words("INSTEAD 2 XNACK s g FAIL IDS 1 1-0"))
FOR_OTHERS = ["XCLAIM s g stand-in 0 1-0 TIME 0 RETRYCOUNT 1 FORCE JUSTID", "SET k stand-in"]


def with_a_pending_entry() -> Replica:
    replica = Replica()
    replica.apply("XADD s 1-0 f v", "XGROUP CREATE s g 0", "XCLAIM s g ann 0 1-0 FORCE JUSTID LASTID 1-0")
    return replica


@pytest.mark.parametrize("cut", [False, True])
def test_what_headrace_does_instead_replaces_what_follows_for_others(cut: bool) -> None:
    replica = with_a_pending_entry()
    replica.effects()
    transaction: list[str | list[bytes]] = ["MULTI", RELEASE, *FOR_OTHERS, "SET k v", "EXEC"]
    if cut:
        replica.apply(*transaction[:3])
        replica.applier.discard_transaction()
    replica.apply(*transaction, "SET l w")
    assert replica.ask("XPENDING s g - + 9") == [[b"1-0", b"", ANY, 1]]
    assert replica.ask("MGET k l") == [b"v", b"w"]
    effects = [text for _, text in replica.effects()]
    assert effects == [b"MULTI", b"XNACK s g FAIL IDS 1 1-0", b"SET k v", b"EXEC", b"SET l w"]


def test_another_server_cannot_say_what_headrace_does_instead() -> None:
    replica = with_a_pending_entry()
    replica.applier.accepts_rules = False
    translated: list[int] = []
    replica.applier.on_translated = lambda: translated.append(1)
    replica.apply("MULTI", RELEASE, *FOR_OTHERS, "EXEC", rule_record([b"TRANSLATED"]))
    assert replica.ask("XPENDING s g - + 9") == [[b"1-0", b"stand-in", ANY, 1]]
    assert replica.ask("GET k") == b"stand-in" and not translated
    replica.applier.accepts_rules = True
    replica.apply(rule_record([b"TRANSLATED"]))
    assert translated == [1]


@pytest.mark.parametrize(
    "record",
    [
        [b"INSTEAD", b"9" * 5000, b"SET", b"k", b"v"],
        [b"INSTEAD", b"0", *rule_record([b"INSTEAD", b"0", b"SET", b"k", b"v"])],
        [b"INSTEAD", b"0", b"MULTI"],
    ],
    ids=["number", "nested", "control"],
)
def test_a_record_that_no_primary_writes_is_skipped(record: list[bytes]) -> None:
    replica = Replica()
    replica.apply(rule_record(record), "SET l w")
    assert replica.ask("MGET k l") == [None, b"w"] and replica.applier.skipped_commands == {"PUBLISH": 1}


def test_a_number_of_thousands_of_digits_is_limited_like_any_other() -> None:
    replica = with_a_pending_entry()
    replica.applier.limits_entries_read = True
    replica.apply([*words("XGROUP SETID s g 1-0 ENTRIESREAD"), b"9" * 5000])
    assert group_of(replica)[b"entries-read"] == 1
