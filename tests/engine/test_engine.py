import logging

import pytest

from headrace.commands import table
from headrace.commands.spec import Command
from headrace.engine import engine as engine_module
from headrace.engine.engine import Engine
from headrace.errors import CommandError


@pytest.fixture
def engine():
    return Engine()


def ask(engine, session, line, now=1000):
    engine.execute(session, line.encode().split(b" "), now)
    return session.reply.take()


@pytest.mark.parametrize("word", ["ping", "PING", "Ping", "pInG"])
def test_a_command_is_found_in_any_case(engine, word):
    assert ask(engine, engine.create_session(), word) == b"+PONG\r\n"


@pytest.mark.parametrize("word", ["config get save", "CONFIG GET save", "Config Get save"])
def test_a_subcommand_is_found_in_any_case(engine, word):
    assert ask(engine, engine.create_session(), word) == b"*2\r\n$4\r\nsave\r\n$0\r\n\r\n"


def test_requests_may_be_pipelined_into_one_answer(engine):
    session = engine.create_session()
    for line in ("SET k v", "NOSUCH", "GET k", "GET"):
        engine.execute(session, line.encode().split(), 1000)
    replies = session.reply.take().split(b"\r\n")
    assert [reply[:1] for reply in replies] == [b"+", b"-", b"$", b"v", b"-", b""]


def test_the_refusal_takes_back_what_was_half_said(engine, monkeypatch):
    def half_said(call):
        call.reply.array(3)
        call.reply.integer(1)
        raise CommandError("ERR not so")

    session = with_command(monkeypatch, half_said)
    assert session("oddity") == b"-ERR not so\r\n"
    assert session("ping") == b"+PONG\r\n"
    session("multi")
    session("oddity")
    session("ping")
    assert session("exec") == b"*2\r\n-ERR not so\r\n+PONG\r\n"


def with_command(monkeypatch, run):
    """Ask an engine whose table holds the command `oddity` besides."""
    oddity = Command("oddity", -1, run, "write", group="server")
    monkeypatch.setattr(engine_module, "COMMANDS", [*table.COMMANDS, oddity])
    engine = Engine()
    session = engine.create_session()
    return lambda line, now=1000: ask(engine, session, line, now)


def test_a_bug_is_answered_and_logged_and_the_data_stays(monkeypatch, caplog):
    def bug(call):
        call.reply.array(2)
        return {}["the bug"]

    say = with_command(monkeypatch, bug)
    say("SET k v")
    with caplog.at_level(logging.ERROR, "headrace"):
        assert say("oddity").startswith(b"-ERR internal error")
    assert "oddity" in caplog.text and "the bug" in caplog.text
    assert say("GET k") == b"$1\r\nv\r\n"


def test_a_transaction_that_is_broken_off_is_over(engine):
    """As by Ctrl-C: what was done of it happened as one, and so does what each later request does."""

    def break_off(database, key):
        raise KeyboardInterrupt

    session = engine.create_session()
    engine.set_effect_recording(True)
    for line in ("SET k v PX 10", "XADD s 1-1 f v", "XADD s 2-1 f v", "XGROUP CREATE s g 0", "MULTI"):
        ask(engine, session, line)
    for line in ("SET a 1", "SET b 1", "GET k", "SET c 1"):
        ask(engine, session, line)
    engine.effects.take()
    engine.keyspace.on_expired = break_off
    with pytest.raises(KeyboardInterrupt):
        ask(engine, session, "EXEC", 2000)
    session.reply.take()
    assert [words[0] for _, words in engine.effects.take()] == [b"MULTI", b"SET", b"SET", b"EXEC"]
    assert ask(engine, session, "XREADGROUP GROUP g c STREAMS s >", 2000).count(b"-1\r\n") == 2
    words = [words[0] for _, words in engine.effects.take()]
    assert (words[0], words[-1]) == (b"MULTI", b"EXEC") and len(words) == 4


def test_line_ends_never_get_into_an_error(engine):
    session = engine.create_session()
    engine.execute(session, [b"no\r\nsuch", b"a\nb"], 1000)
    answer = session.reply.take()
    assert answer == b"-ERR unknown command 'no  such', with args beginning with: 'a b' \r\n"


def test_who_came_first_is_served_first(engine):
    sessions = [engine.create_session() for _ in range(5)]
    for session in sessions:
        ask(engine, session, "XREAD BLOCK 0 STREAMS s $")
    engine.close(sessions[2])
    ask(engine, engine.create_session(), "XADD s 1-1 f v")
    assert [session.id for session in engine.woken_sessions] == [1, 2, 4, 5]
    assert all(session.waiter is None and session.reply.pending_bytes() for session in engine.woken_sessions)
    assert sessions[2].reply.pending_bytes() == 0


def test_a_wait_ends_at_its_deadline_and_not_before(engine):
    session = engine.create_session()
    assert ask(engine, session, "XREAD BLOCK 50 STREAMS s $", 1000) == b""
    assert engine.next_deadline() == 1050
    engine.tick(1049)
    assert engine.woken_sessions == []
    engine.tick(1050)
    assert engine.woken_sessions == [session] and session.reply.take() == b"*-1\r\n"
    assert engine.next_deadline() == -1


def test_a_waiter_whose_key_becomes_something_else_still_waits(engine):
    waiting, other = engine.create_session(), engine.create_session()
    ask(engine, waiting, "XREAD BLOCK 0 STREAMS s 0")
    ask(engine, other, "SET s string")
    assert waiting.waiter is not None
    ask(engine, other, "DEL s")
    ask(engine, other, "XADD s 1-1 f v")
    assert waiting.waiter is None and engine.woken_sessions == [waiting]


def test_a_waiter_stays_in_the_database_it_asked_in(engine):
    waiting, other = engine.create_session(), engine.create_session()
    ask(engine, waiting, "SELECT 2")
    ask(engine, waiting, "XREAD BLOCK 0 STREAMS s 0")
    ask(engine, other, "XADD s 1-1 f v")
    assert waiting.waiter is not None
    ask(engine, other, "SWAPDB 0 2")
    assert waiting.waiter is None and waiting.reply.take().startswith(b"*1\r\n")


def test_expired_keys_are_swept_without_being_accessed(engine):
    session = engine.create_session()
    ask(engine, session, "SET k v PX 500", 1000)
    assert engine.next_deadline() == 1500
    engine.tick(1500)
    assert len(engine.keyspace.database(0).values) == 0
    assert engine.next_deadline() == -1


def test_a_death_of_age_has_an_effect(engine):
    engine.set_effect_recording(True)
    session = engine.create_session()
    ask(engine, session, "SET k v PXAT 1500")
    ask(engine, session, "GET k", 1500)
    assert engine.effects.take()[-1] == (0, [b"DEL", b"k"])
    engine.set_effect_recording(False)
    ask(engine, session, "SET k v")
    assert engine.effects.take() == []


def test_effects_name_their_database(engine):
    engine.set_effect_recording(True)
    session = engine.create_session()
    for line in ("SELECT 5", "SET k v"):
        ask(engine, session, line)
    assert engine.effects.take() == [(5, [b"SET", b"k", b"v"])]


def test_a_pause_holds_requests_back_and_keeps_their_order(engine):
    admin, first, second = (engine.create_session() for _ in range(3))
    assert ask(engine, admin, "CLIENT PAUSE 100", 1000) == b"+OK\r\n"
    assert ask(engine, first, "SET k 1", 1010) == b"" and first.waiter is not None
    assert ask(engine, second, "GET", 1020).startswith(b"-ERR wrong number")
    assert ask(engine, second, "GET k", 1020) == b""
    assert engine.next_deadline() == 1100
    engine.tick(1099)
    assert engine.woken_sessions == []
    engine.tick(1100)
    assert engine.woken_sessions == [first, second]
    assert (first.reply.take(), second.reply.take()) == (b"+OK\r\n", b"$1\r\n1\r\n")
    assert engine.next_deadline() == -1


def test_a_pause_ends_by_itself_before_the_next_request(engine):
    admin, session = engine.create_session(), engine.create_session()
    ask(engine, admin, "CLIENT PAUSE 100", 1000)
    ask(engine, session, "SET k 1", 1010)
    assert ask(engine, admin, "GET k", 1100) == b"$1\r\n1\r\n"
    assert engine.woken_sessions == [session]


def test_a_pause_of_writes_lets_reads_pass(engine):
    admin, writer = engine.create_session(), engine.create_session()
    ask(engine, writer, "MULTI", 990)
    ask(engine, writer, "SET k 1", 990)
    ask(engine, admin, "CLIENT PAUSE 1000 WRITE", 1000)
    assert ask(engine, admin, "GET k", 1001) == b"$-1\r\n"
    assert ask(engine, admin, "EXISTS k", 1001) == b":0\r\n"
    assert ask(engine, writer, "EXEC", 1001) == b"" and writer.waiter is not None
    assert ask(engine, admin, "CLIENT UNPAUSE", 1002) == b"+OK\r\n"
    engine.tick(1002)
    assert writer.reply.take() == b"*1\r\n+OK\r\n" and engine.woken_sessions == [writer]


def test_a_held_request_may_wait_on_its_own_account_afterwards(engine):
    admin, session = engine.create_session(), engine.create_session()
    ask(engine, admin, "CLIENT PAUSE 100", 1000)
    ask(engine, session, "XREAD BLOCK 0 STREAMS s $", 1001)
    engine.tick(1100)
    assert engine.woken_sessions == [] and session.waiter is not None
    ask(engine, admin, "XADD s * f v", 1101)
    assert engine.woken_sessions == [session]


def test_who_leaves_during_a_pause_is_not_heard_any_more(engine):
    admin, session = engine.create_session(), engine.create_session()
    ask(engine, admin, "CLIENT PAUSE 100", 1000)
    ask(engine, session, "SET k 1", 1001)
    engine.close(session)
    engine.tick(1100)
    assert engine.woken_sessions == [] and ask(engine, admin, "EXISTS k", 1101) == b":0\r\n"


def test_of_who_leaves_during_a_pause_nothing_is_kept(engine):
    admin, leaver, killed = engine.create_session(), engine.create_session(), engine.create_session()
    ask(engine, admin, "CLIENT PAUSE 100 WRITE", 1000)
    ask(engine, leaver, "SET k 1", 1001)
    ask(engine, killed, "SET k 2", 1001)
    assert len(engine.write_gate.paused_sessions) == 2
    engine.close(leaver)
    engine.kill(killed)
    assert len(engine.write_gate.paused_sessions) == 0
    assert b"blocked_clients:0\r\n" in ask(engine, admin, "INFO clients", 1002)


def test_pauses_only_grow(engine):
    admin, session = engine.create_session(), engine.create_session()
    ask(engine, admin, "CLIENT PAUSE 500 WRITE", 1000)
    engine.write_gate.pause(1200, False)
    assert engine.write_gate.paused_until == 1500 and not engine.write_gate.pauses_writes_only
    engine.write_gate.end_pause()
    assert ask(engine, session, "GET k", 1001) == b"$-1\r\n"
    assert engine.write_gate.paused_until == 0


def test_closing_twice_is_closing_once(engine):
    session = engine.create_session()
    ask(engine, session, "WATCH k")
    engine.close(session)
    engine.close(session)
    assert engine.clients == {}


def test_clients_are_numbered_and_never_twice(engine):
    first = engine.create_session()
    engine.close(first)
    assert engine.create_session().id == first.id + 1
    assert engine.stats.connection_count == 2


def test_the_same_requests_at_the_same_times_give_the_same_bytes():
    def run():
        engine = Engine()
        engine.set_effect_recording(True)
        session = engine.create_session()
        said = b"".join(
            ask(engine, session, line, 1000 + i)
            for i, line in enumerate(
                ["XADD s * a b", "SET k v EX 5", "MULTI", "XADD s * c d", "EXEC", "TTL k", "INFO"]
            )
        )
        return said, engine.effects.take()

    assert run() == run()


@pytest.mark.parametrize(
    ("command", "kind"), [("HSET", "hashes"), ("lpush", "lists"), ("ZADD", "sorted sets")]
)
def test_a_command_of_another_type_is_rejected_with_the_reason(engine, command, kind):
    session = engine.create_session()
    engine.execute(session, [command.encode(), b"k", b"1", b"v"], 1000)
    answer = session.reply.take().decode()
    assert answer.startswith(
        f"-ERR unknown command '{command}': Headrace has no {kind}, only streams and strings"
    )
