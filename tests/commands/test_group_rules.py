"""Rules of a group: leases, back-off, dead letters, MAX-PENDING, CONSUMER-TTL; what is recorded of them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.commands.session import Session
from headrace.engine.engine import Engine
from headrace.keyspace import rule_registry
from headrace.resp.reply_parser import ReplyParser

READ = "XREADGROUP GROUP g {} {}STREAMS s >"


def read(talk: Any, consumer: str, options: str = "", client: str = "a") -> Any:
    """Return the IDs that the consumer receives; None for none; "(waits)"."""
    reply = talk(READ.format(consumer, options and options + " "), client=client)
    return entry_ids(reply)


def entry_ids(reply: Any) -> Any:
    if not isinstance(reply, list):
        return None if reply == "nil-array" else reply
    return [entry[0] for entry in reply[0][1]]


def pending(talk: Any) -> list[list[Any]]:
    """Return ID, consumer and delivery count of all pending entries."""
    return [[row[0], row[1], row[3]] for row in talk("XPENDING s g - + 100")]


@pytest.fixture
def leased(grouped: Any) -> Any:
    """A stream s with 1-0 to 3-0 and a group g with a lease of 100 ms. The time is 1000."""
    assert grouped("XGROUP CFGSET s g LEASE 100") == "OK"
    grouped.effects()
    return grouped


# leases


def test_an_entry_is_delivered_again_when_its_lease_has_ended(leased: Any) -> None:
    assert read(leased, "ann") == ["1-0", "2-0", "3-0"]
    leased("XACK s g 2-0")
    leased.tick(1099)
    assert read(leased, "bob") is None
    leased.tick(1100)
    leased("XADD s 4-0 f v")
    leased.effects()
    assert read(leased, "bob", "COUNT 3") == ["1-0", "3-0", "4-0"]
    assert pending(leased) == [["1-0", "bob", 2], ["3-0", "bob", 2], ["4-0", "bob", 1]]
    assert leased.effects() == [
        "MULTI",
        "XCLAIM s g bob 0 1-0 3-0 TIME 1100 RETRYCOUNT 2 FORCE JUSTID LASTID 3-0",
        "XCLAIM s g bob 0 4-0 TIME 1100 RETRYCOUNT 1 FORCE JUSTID LASTID 3-0",
        "XGROUP SETID s g 4-0 ENTRIESREAD 4",
        "EXEC",
    ]


def test_a_claim_by_the_owner_renews_the_lease(leased: Any) -> None:
    read(leased, "ann", "COUNT 1")
    leased.tick(1090)
    leased("XCLAIM s g ann 0 1-0 JUSTID")
    leased.tick(1150)
    assert read(leased, "bob", "COUNT 1") == ["2-0"]
    leased.tick(1190)
    assert read(leased, "bob", "COUNT 1") == ["1-0"]


def test_an_entry_that_is_nacked_is_due_at_once(leased: Any) -> None:
    read(leased, "ann")
    leased("XNACK s g FAIL IDS 1 2-0")
    assert read(leased, "bob") == ["2-0"]


def test_a_blocked_reader_wakes_when_an_entry_is_due(leased: Any) -> None:
    read(leased, "ann")
    assert read(leased, "bob", "BLOCK 0", client="b") == "(waits)"
    assert leased.engine.next_deadline() == 1100
    leased.tick(1100)
    assert entry_ids(leased.heard("b")) == ["1-0", "2-0", "3-0"]


def test_a_blocked_reader_wakes_for_an_entry_that_is_delivered_later(leased: Any) -> None:
    assert read(leased, "ann", "COUNT 3") == ["1-0", "2-0", "3-0"]
    leased("XACK s g 1-0 2-0 3-0")
    assert read(leased, "bob", "BLOCK 0", client="b") == "(waits)"
    leased("XADD s 4-0 f v")
    assert entry_ids(leased.heard("b")) == ["4-0"]
    assert read(leased, "cid", "BLOCK 0", client="c") == "(waits)"
    leased.tick(leased.engine.next_deadline())
    assert (leased.now, entry_ids(leased.heard("c"))) == (1100, ["4-0"])


def test_noack_history_and_claim_keep_their_meaning(leased: Any) -> None:
    read(leased, "ann", "COUNT 1")
    leased.tick(2000)
    assert read(leased, "bob", "COUNT 1 NOACK") == ["2-0"]
    assert entry_ids(leased("XREADGROUP GROUP g ann STREAMS s 0")) == ["1-0"]
    leased.tick(3000)
    reply = leased("XREADGROUP GROUP g bob COUNT 1 CLAIM 50 STREAMS s >")
    assert reply[0][1][0] == ["1-0", ["f", "1"], 1000, 2]


def test_a_due_entry_that_is_deleted_leaves_the_pending_list(leased: Any) -> None:
    read(leased, "ann")
    leased("XDEL s 1-0 3-0")
    leased.tick(1200)
    leased.effects()
    assert read(leased, "bob") == ["2-0"]
    removed = [one for one in leased.effects() if one.startswith("XCLAIM") and "TIME" not in one]
    assert removed == ["XCLAIM s g bob 0 1-0 JUSTID", "XCLAIM s g bob 0 3-0 JUSTID"]
    assert pending(leased) == [["2-0", "bob", 2]]


def test_without_rules_nothing_is_delivered_again(grouped: Any) -> None:
    read(grouped, "ann")
    grouped.tick(10**9)
    assert read(grouped, "bob") is None


# BACKOFF


def test_each_redelivery_waits_for_its_delay(leased: Any) -> None:
    leased("XGROUP CFGSET s g BACKOFF 10,1000")
    times = []
    read(leased, "ann", "COUNT 1")
    leased("XGROUP SETID s g 3-0")
    read(leased, "ann", "BLOCK 0", client="b")
    for _ in range(4):
        leased.tick(leased.engine.next_deadline())
        assert entry_ids(leased.heard("b")) == ["1-0"]
        times.append(leased.now)
        read(leased, "ann", "BLOCK 0", client="b")
    assert times == [1110, 1110 + 1100, 1110 + 2200, 1110 + 3300]


def test_a_long_delay_does_not_hold_up_entries_delivered_later(leased: Any) -> None:
    leased("XGROUP CFGSET s g BACKOFF 10,100000")
    read(leased, "ann", "COUNT 1")
    leased.tick(1110)
    assert read(leased, "ann", "COUNT 1") == ["1-0"]  # now it waits for 100 s
    assert read(leased, "ann", "COUNT 1") == ["2-0"]
    leased.tick(1220)
    assert read(leased, "bob", "COUNT 1") == ["2-0"]
    assert read(leased, "bob", "COUNT 1") == ["3-0"]
    assert read(leased, "bob", "COUNT 1") is None


def test_a_claim_with_an_earlier_time_makes_an_entry_due(leased: Any) -> None:
    leased("XGROUP CFGSET s g BACKOFF 1000")
    read(leased, "ann")
    assert read(leased, "bob") is None
    leased("XCLAIM s g ann 0 2-0 TIME 1 JUSTID")
    leased.tick(1200)
    assert read(leased, "bob") == ["2-0"]


@pytest.mark.parametrize(
    "claim",
    [
        "XCLAIM s g bob 0 9-0",
        "XCLAIM s g bob 0 9-0 JUSTID",
        "XAUTOCLAIM s g bob 0 9-0 COUNT 1",
        "XREADGROUP GROUP g bob COUNT 1 CLAIM 0 STREAMS s >",
    ],
)
def test_an_entry_that_was_never_owned_becomes_due_after_a_claim(leased: Any, claim: str) -> None:
    leased("XGROUP CFGSET s g BACKOFF 5")
    read(leased, "ann")
    leased.tick(leased.now + 1)  # the due times of 1-0 to 3-0 are known from here on
    leased("XADD s 9-0 f v")
    leased("XGROUP SETID s g 9-0")
    leased("XNACK s g SILENT IDS 1 9-0 FORCE")
    leased(claim)
    leased.tick(leased.now + 10_000)
    assert "9-0" in read(leased, "cid")


def test_many_claims_deliver_each_due_entry_once(leased: Any) -> None:
    leased("XGROUP CFGSET s g BACKOFF 5")
    read(leased, "ann")
    leased.tick(leased.now + 1)
    for earlier in (5, 9, 3, 9, 9):
        leased(f"XCLAIM s g bob 0 1-0 TIME {leased.now - earlier} RETRYCOUNT 1")
    leased.tick(leased.now + 10_000)
    assert read(leased, "cid").count("1-0") == 1


def test_a_released_entry_does_not_wait_for_its_delay(leased: Any) -> None:
    leased("XGROUP CFGSET s g BACKOFF 1000 MAX-DELIVERIES 9")
    read(leased, "ann")
    leased("XNACK s g FAIL IDS 2 2-0 3-0")
    assert read(leased, "bob") == ["2-0", "3-0"]


# dead letters


def test_after_the_last_delivery_an_entry_becomes_a_dead_letter(leased: Any) -> None:
    leased("XGROUP CFGSET s g MAX-DELIVERIES 2")
    for now in (1000, 1100):
        leased.tick(now)
        assert read(leased, "ann", "COUNT 1") == ["1-0"]
    leased.tick(1200)
    leased.effects()
    assert read(leased, "bob", "COUNT 1") == ["2-0"]
    effects = leased.effects()
    assert effects[-4:] == [
        "MULTI",
        "XADD {s}:dead 1200-0 f 1 dead:stream s dead:id 1-0 dead:group g dead:consumer ann dead:deliveries 2"
        " dead:error delivered 2 times and never acknowledged",
        "XACK s g 1-0",
        "EXEC",
    ]
    assert pending(leased) == [["2-0", "bob", 1]]


def test_a_blocked_reader_is_no_obstacle_for_a_dead_letter(leased: Any) -> None:
    leased("XGROUP CFGSET s g MAX-DELIVERIES 1 DEAD-LETTER graves")
    read(leased, "ann")
    assert read(leased, "bob", "BLOCK 0", client="b") == "(waits)"
    leased.tick(1100)
    assert leased.heard("b") == "(waits)"
    assert [leased("XLEN graves"), pending(leased)] == [3, []]


def test_an_entry_stays_pending_while_its_dead_letter_cannot_be_added(leased: Any) -> None:
    leased("XGROUP CFGSET s g MAX-DELIVERIES 1 DEAD-LETTER graves BACKOFF 5")
    read(leased, "ann", "COUNT 1")
    leased("XGROUP SETID s g 3-0")
    leased("SET graves x")
    leased.tick(1200)
    assert read(leased, "bob") is None
    assert pending(leased) == [["1-0", "ann", 1]]
    leased("DEL graves")
    leased.tick(2200)  # it is tried again after a second
    assert read(leased, "bob") is None
    assert [leased("XLEN graves"), pending(leased)] == [1, []]


def test_fields_of_an_earlier_dead_letter_are_replaced(leased: Any) -> None:
    leased("XGROUP CFGSET s g MAX-DELIVERIES 1")
    leased("XADD s 9-0 dead:id 7-7 dead:error old f v")
    leased("XGROUP SETID s g 8-0")
    read(leased, "ann")
    leased.tick(1100)
    read(leased, "ann")
    ((_, fields),) = leased("XRANGE {s}:dead - +")
    assert fields[:4] == ["f", "v", "dead:stream", "s"] and fields.count("dead:id") == 1


@pytest.mark.parametrize(
    ("request_line", "error"),
    [
        ("XGROUP CFGSET s g MAX-DELIVERIES 3", "-ERR MAX-DELIVERIES requires LEASE"),
        ("XGROUP CFGSET s g BACKOFF 5", "-ERR BACKOFF requires LEASE"),
        ("XGROUP CFGSET s g LEASE 5 DEAD-LETTER d", "-ERR DEAD-LETTER requires MAX-DELIVERIES"),
        (
            "XGROUP CFGSET s g LEASE 5 MAX-DELIVERIES 3 DEAD-LETTER s",
            "-ERR DEAD-LETTER must be another stream than the group's own",
        ),
        (
            "XGROUP CFGSET s g LEASE 5 BACKOFF 1,x",
            "-ERR BACKOFF must be 1 to 100 delays in milliseconds, separated by commas;",
        ),
        ("XGROUP CFGSET s g LEASE", "-ERR wrong number of arguments for 'xgroup|cfgset' command"),
        ("XGROUP CFGSET s g MAX-LEN 5", "-ERR syntax error"),
        ("XGROUP CFGSET s h LEASE 5", "-NOGROUP No such consumer group 'h' for key name 's'"),
        ("XGROUP CFGSET s g LEASE 5 MAX-DELIVERIES 3 DEAD-LETTER text", "-WRONGTYPE"),
    ],
)
def test_an_invalid_rule_changes_nothing(grouped: Any, request_line: str, error: str) -> None:
    grouped("SET text x")
    grouped.effects()
    assert grouped(request_line).startswith(error)
    assert grouped.effects() == [] and "rules" not in grouped("XINFO GROUPS s")[0]


def test_a_lease_that_other_rules_require_cannot_be_removed(leased: Any) -> None:
    leased("XGROUP CFGSET s g MAX-DELIVERIES 3")
    assert leased("XGROUP CFGSET s g LEASE 0") == "-ERR MAX-DELIVERIES requires LEASE"
    assert leased("XGROUP CFGSET s g LEASE 0 MAX-DELIVERIES 0") == "OK"
    assert "rules" not in leased("XINFO GROUPS s")[0]


def test_dead_letter_streams_have_no_dead_letters(leased: Any) -> None:
    leased("XGROUP CFGSET s g MAX-DELIVERIES 3")
    leased("XGROUP CREATE {s}:dead h 0 MKSTREAM")
    error = "-ERR MAX-DELIVERIES must not be set on a stream of dead letters"
    assert leased("XGROUP CFGSET {s}:dead h LEASE 5 MAX-DELIVERIES 2") == error
    leased("XGROUP CREATE t h 0 MKSTREAM")
    leased("XGROUP CFGSET t h LEASE 5")
    error = "-ERR DEAD-LETTER must be a stream without dead letters of its own"
    assert leased("XGROUP CFGSET t h MAX-DELIVERIES 2 DEAD-LETTER s") == error


@pytest.mark.parametrize("rule", ["DEAD-LETTER", "ORDERED-BY"])
def test_a_name_in_a_rule_is_no_place_for_megabytes(leased: Any, rule: str) -> None:
    words = ("XGROUP", "CFGSET", "s", "g", "MAX-DELIVERIES", "3", rule)
    assert "take at most 4096 bytes" in leased.words(*words, "x" * 5000)
    assert leased.words(*words, "x" * 4096) == "OK"


def test_changing_one_group_passes_no_other_groups(leased: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(50):
        leased(f"XGROUP CREATE s g{n} 0")
        assert leased(f"XGROUP CFGSET s g{n} LEASE 5 MAX-DELIVERIES 3 DEAD-LETTER dead{n % 2}") == "OK"
    asked: list[bytes] = []
    find = rule_registry.dead_letter_key
    monkeypatch.setattr(
        rule_registry, "dead_letter_key", lambda *words: asked.append(words[0]) or find(*words)
    )
    for n in range(0, 50, 2):
        leased(f"XGROUP DESTROY s g{n}")
    assert leased("XGROUP CFGSET s g1 MAX-DELIVERIES 4") == "OK" and len(asked) == 1
    assert leased("XGROUP CREATE dead0 h 0 MKSTREAM") == leased("XGROUP CREATE dead1 h 0 MKSTREAM") == "OK"
    assert leased("XGROUP CFGSET dead0 h LEASE 5 MAX-DELIVERIES 2") == "OK"
    assert "stream of dead letters" in leased("XGROUP CFGSET dead1 h LEASE 5 MAX-DELIVERIES 2")


def test_swapdb_exchanges_what_is_for_dead_letters(leased: Any) -> None:
    error = "-ERR MAX-DELIVERIES must not be set on a stream of dead letters"
    leased("XGROUP CFGSET s g MAX-DELIVERIES 3 DEAD-LETTER dead")
    for database in (0, 1):
        leased(f"SELECT {database}")
        leased("XGROUP CREATE dead h 0 MKSTREAM")
    leased("SWAPDB 0 1")
    assert leased("XGROUP CFGSET dead h LEASE 5 MAX-DELIVERIES 2") == error
    leased("SWAPDB 1 2")
    assert "requires the key to exist" in leased("XGROUP CFGSET dead h LEASE 5 MAX-DELIVERIES 2")
    leased("SELECT 2")
    assert leased("XGROUP CFGSET dead h LEASE 5 MAX-DELIVERIES 2") == error
    leased("FLUSHDB")
    leased("XGROUP CREATE dead h 0 MKSTREAM")
    assert leased("XGROUP CFGSET dead h LEASE 5 MAX-DELIVERIES 2") == "OK"


def test_swapdb_passes_no_streams_with_rules(leased: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leased("XGROUP CFGSET s g MAX-DELIVERIES 3 DEAD-LETTER dead")
    asked: list[bytes] = []
    find = rule_registry.dead_letter_key
    monkeypatch.setattr(
        rule_registry, "dead_letter_key", lambda *words: asked.append(words[0]) or find(*words)
    )
    assert leased("SWAPDB 0 1") == leased("SWAPDB 1 3") == "OK"
    assert asked == []
    ruled = next(iter(leased.engine.keyspace.rule_registry.streams.values()))
    assert ruled.database == 3 and leased.engine.keyspace.databases[3].values[b"s"] is ruled.stream


def test_a_stream_is_no_dead_letter_stream_any_more_when_its_last_group_is_gone(leased: Any) -> None:
    leased("XGROUP CFGSET s g MAX-DELIVERIES 3 DEAD-LETTER dead")
    leased("XGROUP CREATE t g 0 MKSTREAM")
    leased("XGROUP CFGSET t g LEASE 5 MAX-DELIVERIES 3 DEAD-LETTER dead")
    leased("XGROUP CREATE dead h 0 MKSTREAM")
    line = "XGROUP CFGSET dead h LEASE 5 MAX-DELIVERIES 2"
    error = "-ERR MAX-DELIVERIES must not be set on a stream of dead letters"
    assert leased(line) == error
    leased("XGROUP DESTROY s g")
    assert leased(line) == error
    leased("RENAME t u")
    assert leased(line) == error
    leased("SWAPDB 0 1")
    leased("SELECT 1")
    assert leased(line) == error
    leased("DEL u")
    assert leased(line) == "OK"


def test_a_user_cannot_send_dead_letters_where_it_may_not_write(leased: Any) -> None:
    leased("ACL SETUSER eve on nopass ~s +@all")
    leased("AUTH eve x", client="e")
    line = "XGROUP CFGSET s g MAX-DELIVERIES 2 DEAD-LETTER secret"
    assert leased(line, client="e").startswith("-NOPERM")
    assert leased("XGROUP CFGSET s g MAX-DELIVERIES 2", client="e").startswith("-NOPERM")
    leased("ACL SETUSER eve ~secret")
    assert leased(line, client="e") == "OK"


def test_a_restored_stream_sends_no_dead_letters_where_the_user_may_not_write() -> None:
    engine = Engine()
    admin, eve = engine.create_session(), engine.create_session()

    def run(session: Session, *argv: bytes) -> bytes:
        engine.execute(session, list(argv), 1000)
        return bytes(session.reply.take())

    def dumped(key: bytes) -> bytes:
        parser = ReplyParser()
        parser.feed(run(admin, b"DUMP", key))
        found = parser.next()
        assert isinstance(found, bytes)
        return found

    run(admin, *b"XGROUP CREATE s g 0 MKSTREAM".split())
    run(admin, *b"XGROUP CFGSET s g LEASE 10 MAX-DELIVERIES 1 DEAD-LETTER secret".split())
    payload = dumped(b"s")
    run(admin, *b"ACL SETUSER eve on nopass ~s ~t +@all".split())
    run(eve, b"AUTH", b"eve", b"x")
    assert run(eve, b"RESTORE", b"t", b"0", payload).startswith(b"-NOPERM")
    assert run(admin, b"RESTORE", b"secret", b"0", payload).startswith(b"-ERR DEAD-LETTER must be another")
    assert run(admin, b"EXISTS", b"t", b"secret") == b":0\r\n"
    run(admin, *b"ACL SETUSER eve ~secret".split())
    assert run(eve, b"RESTORE", b"t", b"0", payload) == b"+OK\r\n"


@pytest.mark.parametrize("line", ["RENAME s t", "RENAMENX s t", "COPY s t", "COPY s s DB 1", "MOVE s 1"])
def test_dead_letter_rules_go_with_a_stream_only_where_the_user_may_write(leased: Any, line: str) -> None:
    leased("XGROUP CFGSET s g MAX-DELIVERIES 2 DEAD-LETTER secret")
    leased("ACL SETUSER eve on nopass ~s ~t +@all")
    leased("AUTH eve x", client="e")
    assert leased(line, client="e").startswith("-NOPERM")
    assert leased("EXISTS s t") == 1
    leased("ACL SETUSER eve ~secret")
    assert leased(line, client="e") in (1, "OK")


def test_many_groups_with_dead_letters_are_restored_in_linear_time(leased: Any) -> None:
    for number in range(2000):
        leased(f"XGROUP CREATE many g{number} 0 MKSTREAM")
        leased(f"XGROUP CFGSET many g{number} LEASE 1000 MAX-DELIVERIES 3")
    assert leased("COPY many copy") == 1
    assert len(leased("XINFO GROUPS copy")) == 2000


def test_a_stream_renamed_to_its_dead_letters_has_the_default_ones(leased: Any) -> None:
    leased("XGROUP CFGSET s g MAX-DELIVERIES 1 DEAD-LETTER t")
    assert leased("RENAME s t") == "OK"
    read_t = "XREADGROUP GROUP g ann COUNT 1 STREAMS t >"
    leased(read_t)
    leased.tick(2000)
    leased(read_t)
    assert leased("XLEN {t}:dead") == 1
    assert leased("XLEN t") == 3


# MAX-PENDING


def test_a_consumer_gets_no_more_than_it_may_have_pending(grouped: Any) -> None:
    grouped("XGROUP CFGSET s g MAX-PENDING 2")
    assert read(grouped, "ann") == ["1-0", "2-0"]
    assert read(grouped, "ann") is None
    assert read(grouped, "ann", "BLOCK 0", client="b") == "(waits)"
    grouped("XADD s 4-0 f v")
    assert grouped.heard("b") == "(waits)"
    assert read(grouped, "bob", "COUNT 1") == ["3-0"]
    grouped("XACK s g 1-0")
    assert entry_ids(grouped.heard("b")) == ["4-0"]


def test_a_consumer_with_room_is_served_though_another_waits_before_it(grouped: Any) -> None:
    grouped("XGROUP CFGSET s g MAX-PENDING 3")
    read(grouped, "ann")
    assert read(grouped, "ann", "BLOCK 0", client="b") == "(waits)"
    assert read(grouped, "bob", "BLOCK 0", client="c") == "(waits)"
    grouped("XADD s 4-0 f v")
    assert (grouped.heard("b"), entry_ids(grouped.heard("c"))) == ("(waits)", ["4-0"])


def test_waiters_are_separated_when_the_rule_is_set_later(grouped: Any) -> None:
    read(grouped, "ann")
    read(grouped, "ann", "BLOCK 0", client="b")
    read(grouped, "bob", "BLOCK 0", client="c")
    grouped("XGROUP CFGSET s g MAX-PENDING 3")
    grouped("XADD s 4-0 f v")
    assert (grouped.heard("b"), entry_ids(grouped.heard("c"))) == ("(waits)", ["4-0"])


# CONSUMER-TTL


def test_an_inactive_consumer_without_entries_is_removed(grouped: Any) -> None:
    grouped("XGROUP CFGSET s g CONSUMER-TTL 500")
    read(grouped, "ann")
    grouped("XACK s g 1-0 2-0 3-0")
    grouped.tick(1400)
    read(grouped, "bob")
    grouped.effects()
    grouped.tick(1500)
    assert grouped.effects() == ["XGROUP DELCONSUMER s g ann"]
    assert [one[1] for one in grouped("XINFO CONSUMERS s g")] == ["bob"]


def test_the_entries_of_an_inactive_consumer_become_due_first(grouped: Any) -> None:
    grouped("XGROUP CFGSET s g CONSUMER-TTL 500 LEASE 100000")
    read(grouped, "ann")
    read(grouped, "bob", "BLOCK 0", client="b")
    grouped.tick(1500)
    assert entry_ids(grouped.heard("b")) == ["1-0", "2-0", "3-0"]
    assert pending(grouped) == [["1-0", "bob", 2], ["2-0", "bob", 2], ["3-0", "bob", 2]]
    grouped.tick(2000)
    assert [one[1] for one in grouped("XINFO CONSUMERS s g")] == ["bob"]


def test_all_entries_of_inactive_consumers_become_due_in_steps(grouped: Any) -> None:
    grouped("XGROUP CFGSET s g CONSUMER-TTL 500 LEASE 100000")
    for n in range(4, 1204):
        grouped(f"XADD s {n}-0 f v")
    assert len(read(grouped, "ann", "COUNT 1100")) == 1100
    assert len(read(grouped, "bob", "COUNT 103")) == 103
    for _ in range(10):
        grouped.tick(1500)
    due = read(grouped, "cid", "COUNT 2000")
    assert len(due) == 1203
    assert {row[1] for row in pending(grouped)} == {"cid"}


def test_a_consumer_that_returns_keeps_its_other_entries(grouped: Any) -> None:
    grouped("XGROUP CFGSET s g CONSUMER-TTL 500 LEASE 100000")
    for n in range(4, 1204):
        grouped(f"XADD s {n}-0 f v")
    read(grouped, "ann", "COUNT 2000")
    grouped.tick(1500)
    grouped("XCLAIM s g ann 0 1203-0 JUSTID")
    for _ in range(10):
        grouped.tick(1500)
    assert len(read(grouped, "bob", "COUNT 2000")) < 1203


# suspension


def test_rules_are_suspended_on_a_replica_and_resumed_after_its_promotion(leased: Any) -> None:
    leased("XCFGSET s MAX-AGE 10 EXACT 1")
    leased.engine.keyspace.hide_expired = True
    leased.engine.tick(5000)
    assert leased("XLEN s") == 0 or leased.engine.next_deadline() == -1
    assert leased.engine.rule_runner.is_suspended()
    leased.engine.keyspace.hide_expired = False
    leased.tick(5000)
    assert leased("XLEN s") == 0


@pytest.mark.parametrize("order", ["", " ORDERED-BY f"])
@pytest.mark.parametrize("end", ["XNACK s g FAIL IDS 1 1-0", "PING"])
def test_failing_dead_letters_are_tried_once_a_second(talk: Any, order: str, end: str, caplog: Any) -> None:
    talk("XADD s 1-0 f 1")
    talk("XGROUP CREATE s g 0")
    assert talk(f"XGROUP CFGSET s g LEASE 100 MAX-DELIVERIES 1{order}") == "OK"
    talk("SET {s}:dead string")
    read(talk, "ann")
    assert read(talk, "bob", "BLOCK 0", client="b") == "(waits)"
    talk(end)
    wakes = 0
    while talk.now < 6000:
        talk.tick(max(talk.engine.next_deadline(), talk.now + 1))
        wakes += 1
    assert wakes < 20 and 4 <= len(caplog.records) <= 6
    assert pending(talk)[0][0] == "1-0"
    talk("DEL {s}:dead")
    for now in (7000, 8100):
        talk.tick(now)
    assert talk("XLEN {s}:dead") == 1 and pending(talk) == []


@pytest.mark.parametrize("order", ["", " ORDERED-BY f"])
def test_thousands_of_dead_letters_are_moved_in_steps(talk: Any, order: str) -> None:
    talk("XGROUP CREATE s g 0 MKSTREAM")
    for number in range(1000):
        talk(f"XADD s * f {number}")
    assert talk(f"XGROUP CFGSET s g LEASE 100 MAX-DELIVERIES 1{order}") == "OK"
    read(talk, "ann", "COUNT 1000")
    talk.tick(1100)
    assert read(talk, "bob", "BLOCK 0", client="b") == "(waits)"
    assert talk("XLEN {s}:dead") < 500
    for _ in range(20):
        talk.tick(1200)
    assert talk("XLEN {s}:dead") == 1000 and pending(talk) == []


def test_the_ttl_of_consumers_counts_from_a_start(grouped: Any) -> None:
    """When a consumer was last seen is not in the log: an empty read changes nothing."""
    grouped("XGROUP CFGSET s g CONSUMER-TTL 500 LEASE 100000")
    read(grouped, "ann", "COUNT 1")
    grouped.tick(1499)
    grouped.engine.rule_runner.reapply_all_next_time()  # as after the data was loaded, and after a promotion
    grouped.tick(2000)
    grouped.tick(2499)
    assert read(grouped, "bob", "COUNT 1") == ["2-0"]
    assert pending(grouped) == [["1-0", "ann", 1], ["2-0", "bob", 1]]
    grouped.tick(2500)
    assert read(grouped, "bob") == ["1-0", "3-0"]


@pytest.mark.parametrize("way", ["pause", "failed writes", "too few replicas", "replica", "restored"])
def test_the_ttl_of_consumers_starts_again_when_the_rules_were_not_applied(grouped: Any, way: str) -> None:
    """Meanwhile the requests of active consumers were rejected or held, or went to another server."""
    gate, keyspace = grouped.engine.write_gate, grouped.engine.keyspace
    grouped("XGROUP CFGSET s g CONSUMER-TTL 500")
    read(grouped, "ann")
    grouped("XACK s g 1-0 2-0 3-0")
    grouped.engine.next_deadline()
    if way == "pause":
        gate.pause(3000, True)
    elif way == "failed writes":
        gate.reject_writes(b"MISCONF")
    elif way == "too few replicas":
        gate.set_too_few_replicas(True)
    elif way == "replica":
        keyspace.hide_expired = True
    else:
        image = grouped.raw("DUMP s").split(b"\r\n", 1)[1][:-2]
        grouped("DEL s")
    grouped.engine.next_deadline()
    grouped.tick(2999)
    if way == "restored":
        assert grouped.words("RESTORE", "s", "0", image) == "OK"
    gate.reject_writes(None)
    gate.set_too_few_replicas(False)
    keyspace.hide_expired = False
    grouped.tick(3000)
    grouped.tick(3498)
    assert len(grouped("XINFO CONSUMERS s g")) == 1
    grouped.tick(3500)
    assert grouped("XINFO CONSUMERS s g") == []


def test_rules_that_were_just_set_remove_consumers_of_long_ago(grouped: Any) -> None:
    read(grouped, "ann", "COUNT 1")
    grouped("XACK s g 1-0")
    grouped.tick(9000)
    grouped("XGROUP CFGSET s g CONSUMER-TTL 500")
    grouped.tick(9000)
    assert grouped("XINFO CONSUMERS s g") == []


def test_rules_change_nothing_while_too_few_replicas_follow(talk: Any) -> None:
    """Clients may not write then: another primary may have taken over, and does the same work."""
    talk("XADD s 1-0 f v")
    talk("XGROUP CREATE s g 0")
    talk("XGROUP CFGSET s g LEASE 100 MAX-DELIVERIES 1 CONSUMER-TTL 100")
    talk("XADD old 1-0 f v")
    talk("XCFGSET old MAX-AGE 1000 EXACT 1")
    talk("XADD s DELAY 100 * f scheduled")
    read(talk, "ann")
    read(talk, "bob", "BLOCK 0", client="b")
    talk.engine.write_gate.set_too_few_replicas(True)
    talk.effects()
    for now in (2000, 4000):
        talk.tick(now)
    assert talk.effects() == [] and talk.heard("b") == "(waits)"
    assert talk.engine.next_deadline() == -1
    talk.engine.write_gate.set_too_few_replicas(False)
    talk.tick(4001)
    assert talk.engine.keyspace.databases[0].stream(b"s").length == 2
    assert talk("XLEN old") == 0
