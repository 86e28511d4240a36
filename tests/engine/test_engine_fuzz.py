"""Random requests: one reply each, never an internal error, and the engine stays usable."""

import random

import pytest

from headrace.commands.table import COMMANDS
from headrace.engine.engine import Engine

ONE_REPLY_A_CHANNEL = {
    *(b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ssubscribe", b"sunsubscribe")
}
NAMES = [command.name for command in COMMANDS if command.name not in ONE_REPLY_A_CHANNEL]
SUBWORDS = [sub.last_name_part for command in COMMANDS for sub in command.unique_subcommands()]
OPTIONS = b"""NX XX GT LT GET KEEPTTL EX PX EXAT PXAT MATCH COUNT TYPE STREAMS BLOCK MAXLEN MINID LIMIT
    = ~ * - + $ > NOMKSTREAM FULL STREAM SAMPLES ID ADDR USER SKIPME yes no ON OFF SKIP WRITE ALL TIMEOUT
    ERROR SETNAME AUTH default ASYNC SYNC DB REPLACE ENTRIESADDED MAXDELETEDID FILTERBY PATTERN ACLCAT MODULE
    REDIRECT PREFIX BCAST OPTIN OPTOUT NOLOOP
    """.split()
NUMBERS = b"""0 1 2 3 -1 15 16 1-1 1-2 5-* 0-0 1.5 1e3
    9223372036854775807 -9223372036854775808 18446744073709551615""".split()
ODD = [b"", b"\x00", b"\xff" * 3, b"a\r\nb", b" 1", b"x" * 200, b"k\x00y"]
KEYS = [b"a", b"b", b"s", b"t"]
ROUNDS = 20_000


def request(chance):
    words = [chance.choice(NAMES) if chance.random() < 0.97 else chance.choice(ODD)]
    if chance.random() < 0.3:
        words.append(chance.choice(SUBWORDS))
    for _ in range(chance.randint(0, 6)):
        words.append(chance.choice(chance.choice((KEYS, KEYS, OPTIONS, NUMBERS, ODD))))
    return [word.upper() if chance.random() < 0.2 else word for word in words]


def replies(data):
    """How many whole replies data is, without the pushes that invalidate cached keys."""
    found = 0
    at = 0
    while at < len(data):
        found += not data.startswith(b">", at)
        at = end_of_reply(data, at)
    return found


def end_of_reply(data, at):
    line_end = data.index(b"\r\n", at)
    kind, text, at = data[at : at + 1], data[at + 1 : line_end], line_end + 2
    assert kind in b"+-:_,#$=*%~>", f"no reply: {data[:100]!r}"
    if kind in b"$=" and int(text) >= 0:
        at += int(text)
        assert data[at : at + 2] == b"\r\n"
        return at + 2
    if kind in b"*%~>":
        for _ in range(int(text) * (2 if kind == b"%" else 1)):
            at = end_of_reply(data, at)
    return at


@pytest.mark.parametrize("seed", range(4))
def test_any_words_get_one_reply_or_wait(seed):
    chance = random.Random(seed)
    engine = Engine()
    engine.set_effect_recording(True)
    engine.keyspace.settings.slowlog_log_slower_than = seed - 1
    engine.keyspace.settings.latency_tracking = seed > 1
    engine.timing.refresh()
    sessions = {}
    now = 1000
    for _ in range(ROUNDS):
        name = chance.choice("abc")
        if name not in sessions:
            sessions[name] = engine.create_session(b"%s:1" % name.encode(), b"here:1", now)
        session = sessions[name]
        if session.waiter is not None:
            engine.unblock(session) or engine.resume_paused(now)
        before = session.reply.pending_bytes()
        argv = request(chance)
        engine.execute(session, argv, now)
        answer = session.reply.take()
        assert b"internal error" not in answer, argv
        heard = session.reply_mode == 0 and not session.monitoring
        if before == 0 and session.waiter is None and heard and argv[0].lower() != b"client":
            assert replies(answer) == 1, (argv, answer)
        else:
            replies(answer)
        for gone in [session, *engine.killed_sessions] if session.closing else engine.killed_sessions:
            engine.close(gone)
        sessions = {name: kept for name, kept in sessions.items() if not kept.closing}
        engine.killed_sessions.clear()
        engine.take_woken()
        engine.effects.take()
        if chance.random() < 0.1:
            now += chance.randint(0, 2000)
            engine.tick(now)
    for session in sessions.values():
        engine.close(session)
    assert engine.keyspace.blocking.count == 0
    assert not any(database.watched_keys.watches for database in engine.keyspace.databases)
    assert not any(database.watched_keys.has_observers for database in engine.keyspace.databases)
    assert not engine.tracking.readers and not engine.tracking.broadcasts
