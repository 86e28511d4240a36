"""Commands that run again, or for the server itself: the checks of requests hold, requests stay as sent."""

from __future__ import annotations

import pytest

from headrace.commands.call import CallerPolicy
from headrace.engine import dispatch, rule_marks
from support.engine_talk import Talk


@pytest.fixture
def talk() -> Talk:
    return Talk()


def ids(reply: object) -> list[str]:
    """Return the IDs of the entries of the first stream in a reply to a read."""
    assert isinstance(reply, list)
    return [entry[0] for entry in reply[0][1]]


def wait_for_claim(talk: Talk) -> None:
    """Let a client wait for an entry of another consumer, which it may claim after 100 ms."""
    talk("XADD s 1-0 f v")
    talk("XGROUP CREATE s g 0")
    talk("XREADGROUP GROUP g ann STREAMS s >")
    assert talk("XREADGROUP GROUP g bob BLOCK 0 CLAIM 100 STREAMS s >", client="b") == "(waits)"
    talk.effects()


@pytest.mark.parametrize("mode", ["WRITE", "ALL"])
def test_a_waiting_writer_gets_nothing_in_a_pause_and_all_of_it_afterwards(talk: Talk, mode: str) -> None:
    wait_for_claim(talk)
    talk(f"CLIENT PAUSE 60000 {mode}", client="admin")
    talk.tick(1200)
    talk("PING", client="admin")
    assert talk.heard("b") == "(waits)"
    assert talk.effects() == []
    talk("CLIENT UNPAUSE", client="admin")
    talk.tick(1201)
    assert ids(talk.heard("b")) == ["1-0"]
    assert talk.effects()[0].startswith("XCLAIM s g bob 0 1-0 TIME 1201 ")


def test_a_pause_that_ends_by_itself_serves_those_who_waited_before_those_it_held(talk: Talk) -> None:
    wait_for_claim(talk)
    talk("CLIENT PAUSE 500 WRITE", client="admin")
    assert talk("XREADGROUP GROUP g cid CLAIM 100 STREAMS s >", client="c") == "(waits)"
    talk.tick(1200)
    assert talk.heard("b") == "(waits)"
    talk.tick(1500)
    assert ids(talk.heard("b")) == ["1-0"]
    assert talk.heard("c") == "nil-array"


def test_a_pause_of_writes_does_not_hold_waiting_readers(talk: Talk) -> None:
    assert talk("XREAD BLOCK 0 STREAMS s $", client="b") == "(waits)"
    talk("CLIENT PAUSE 60000 WRITE", client="admin")
    talk.engine.keyspace.databases[0].signal_ready(b"s")
    talk("PING", client="admin")
    assert talk.heard("b") == "(waits)"  # nothing was added: it was tried and found nothing
    assert talk.engine.held_ready_keys == {}


def test_a_waiting_writer_is_rejected_when_writes_are(talk: Talk) -> None:
    wait_for_claim(talk)
    talk.engine.write_gate.reject_writes(b"MISCONF the disk is full")
    talk.tick(1200)
    assert talk.heard("b") == "-MISCONF the disk is full"


def test_a_waiting_client_that_lost_a_right_is_rejected(talk: Talk) -> None:
    talk("ACL SETUSER limited on nopass ~* +@all")
    talk("AUTH limited x", client="b")
    wait_for_claim(talk)
    talk("ACL SETUSER limited -xreadgroup")
    talk.tick(1200)
    assert talk.heard("b").startswith("-NOPERM")


def test_a_reader_gets_what_becomes_due_in_a_stream_that_swapdb_brought(talk: Talk) -> None:
    for database in (0, 1):
        talk(f"SELECT {database}")
        talk("XADD s 1-0 f v")
        talk("XGROUP CREATE s g 0")
        talk("XGROUP CFGSET s g LEASE 600")
        talk("XREADGROUP GROUP g ann STREAMS s >")
    talk("XACK s g 1-0")
    talk.tick(1100)
    talk("SELECT 1", client="b")
    assert talk("XREADGROUP GROUP g bob BLOCK 0 STREAMS s >", client="b") == "(waits)"
    talk("SWAPDB 0 1")
    talk.tick(1500)
    assert talk.heard("b") == "(waits)"
    talk.tick(1700)
    assert ids(talk.heard("b")) == ["1-0"]


def test_an_entry_after_deleted_ones_is_claimed_once_in_a_reply(talk: Talk) -> None:
    for number in range(1, 6):
        talk(f"XADD s {number}-0 f v")
    talk("XGROUP CREATE s g 0")
    talk("XREADGROUP GROUP g ann STREAMS s >")
    talk("XTRIM s MAXLEN 2")
    for _ in range(3):  # the first notes the deleted ones
        assert ids(talk("XREADGROUP GROUP g bob CLAIM 0 STREAMS s >")) == ["4-0", "5-0"]


def test_thousands_of_inactive_consumers_are_removed_in_steps(talk: Talk) -> None:
    talk("XADD s 1-0 f v")
    talk("XGROUP CREATE s g 0")
    for number in range(1000):
        talk(f"XGROUP CREATECONSUMER s g c{number}")
    talk("XREADGROUP GROUP g ann STREAMS s >")
    talk("XGROUP CFGSET s g CONSUMER-TTL 500")
    now = 3000
    left = [1001]
    talk.tick(now)
    while len(talk("XINFO CONSUMERS s g")) > 1:
        now += 1
        talk.tick(now)
        left.append(len(talk("XINFO CONSUMERS s g")))
        assert left[-1] >= left[-2] - 200, "too many in one step"
        if now == 3003:
            talk("XGROUP CFGSET s g CONSUMER-TTL 400")  # the check begins again
        assert now < 4000, left
    assert talk("XPENDING s g")[0] == 1  # the one with an entry stays


def test_a_deleted_entry_whose_id_is_added_again_is_claimed(talk: Talk) -> None:
    for one in ("1-1", "2-1", "5-1"):
        talk(f"XADD s {one} f v")
    talk("XGROUP CREATE s g 0")
    talk("XREADGROUP GROUP g ann STREAMS s >")
    talk("XTRIM s MAXLEN 0")
    talk("XSETID s 0-1")
    talk("XADD s 1-1 f new")
    assert ids(talk("XREADGROUP GROUP g bob CLAIM 0 STREAMS s >")) == ["1-1"]
    talk("XADD s 2-1 f new")
    assert sorted(ids(talk("XREADGROUP GROUP g bob CLAIM 0 STREAMS s >"))) == ["1-1", "2-1"]


def test_served_readers_do_not_restart_the_sweep_of_acknowledged_entries(talk: Talk) -> None:
    talk("XADD s 1-0 f v")
    talk("XGROUP CREATE s g $")
    talk("XCFGSET s DROP-ACKED 1")
    stream = talk.engine.keyspace.databases[0].stream(b"s")
    assert stream is not None
    ruled = talk.engine.keyspace.rule_registry.streams[stream]
    talk.tick(1100)
    assert ruled.acked_sweep_start_id == b""
    assert talk("XREADGROUP GROUP g ann BLOCK 0 STREAMS s >", client="b") == "(waits)"
    swept = []
    talk.engine.rule_runner._drop_acked = lambda ruled: swept.append(ruled.acked_sweep_start_id) or True  # type: ignore
    talk("XADD s 2-0 f v")
    assert ids(talk.heard("b")) == ["2-0"]
    assert swept
    assert set(swept) == {b""}


def test_monitors_and_the_slow_log_show_what_was_sent(talk: Talk) -> None:
    talk.engine.keyspace.settings.slowlog_log_slower_than = 0
    talk.engine.timing.refresh()
    talk("MONITOR", client="m")
    talk("XADD orders DELAY 60000 * f v")
    talk("XADD s 1-0 f v")
    talk("XGROUP CREATE s g 0 ENTRIESREAD 99")
    shown = talk.clients["m"].reply.take().decode()
    assert '"XADD" "orders" "DELAY" "60000" "*" "f" "v"' in shown
    assert '"ENTRIESREAD" "99"' in shown
    assert "scheduled" not in shown
    slow = [entry[3] for entry in talk("SLOWLOG GET 10")]
    assert ["XADD", "orders", "DELAY", "60000", "*", "f", "v"] in slow


def test_a_rejected_rule_is_not_counted_as_a_request(talk: Talk) -> None:
    talk("XADD s 1-0 f v")
    talk("XCFGSET s MAX-LEN 1 EXACT 1")
    calls = talk.engine.rows_by_full_name[b"xtrim"].calls
    talk("XADD s 2-0 f v")
    assert talk("XLEN s") == 1
    assert talk.engine.rows_by_full_name[b"xtrim"].calls == calls


def test_only_the_option_noack_acknowledges() -> None:
    assert rule_marks.has_noack(b"XREADGROUP GROUP g c NOACK STREAMS s >".split())
    assert not rule_marks.has_noack(b"XREADGROUP GROUP NOACK NOACK STREAMS s >".split())


def test_only_requests_may_block() -> None:
    policies = [value for value in vars(dispatch).values() if isinstance(value, CallerPolicy)]
    assert [policy.may_block for policy in policies].count(True) == 1
    assert dispatch.REQUEST_POLICY.may_block


def test_the_log_of_denials_keeps_no_long_names(talk: Talk) -> None:
    talk.engine.auth.begin_session(talk.engine.create_session())
    talk("ACL SETUSER eve on nopass ~ok +get +auth")
    talk("PING", client="eve")
    talk.engine.auth.begin_session(talk.clients["eve"])
    talk("AUTH eve x", client="eve")
    for _ in range(3):
        assert "No permissions to access a key" in talk.words("GET", "k" * 1_000_000, client="eve")
    talk.words("AUTH", "u" * 1_000_000, "wrong", client="eve")
    attempt, denial = talk.engine.auth.acl_log.entries
    assert (len(attempt.user), denial.object, denial.count) == (1024, b"k" * 1024, 3)


def test_an_unexpected_error_before_a_command_is_a_reply(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    talk("SET k v")
    talk.engine.write_gate.memory.limit = 1

    def fail(size: int) -> bool:
        raise ValueError("a bug")

    monkeypatch.setattr(talk.engine.write_gate.eviction, "make_room", fail)
    assert talk("SET l w").startswith("-ERR internal error")
    monkeypatch.undo()
    assert talk("GET k") == "v"


def test_clients_that_speak_http_fill_no_log(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    for now_ms in (1_000_000, 1_000_000, 1_059_999, 1_060_000):
        session = talk.engine.create_session()
        talk.engine.execute(session, [b"POST", b"/"], now_ms)
        assert session.closing
    assert len([line for line in caplog.messages if "speaks HTTP" in line]) == 2
