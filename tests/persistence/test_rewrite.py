"""A keyspace that is written as commands and replayed is the same keyspace."""

import os
import random

import pytest

from headrace.engine.engine import Engine
from headrace.persistence.aof.rewrite import command_steps, commands_of, write_commands
from headrace.resp.parser import RequestParser
from support.all_commands import START_MS, Follower, History
from support.portrait import alive, differences, portrait

SEEDS, TURNS = (40, 1500) if "HEADRACE_COMPILED" in os.environ else (6, 400)


def look(engine, now):
    return alive(portrait(engine.keyspace, times=False), now)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_commands_restore_the_keyspace(seed):
    history = History(seed)
    for _ in range(10):
        history.run(TURNS // 10)
        again = Follower(history.now + 10_000_000)
        again.repeat(commands_of(history.engine.keyspace, history.now))
        assert differences(look(history.engine, history.now), look(again.engine, history.now)) == []


def replay(records: bytes, again: Follower) -> None:
    parser = RequestParser()
    parser.feed(records)
    while (words := parser.next()) is not None:
        assert not again.say(words).startswith(b"-")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_commands_of_one_moment_are_written_while_others_are_executed(seed):
    history = History(seed)
    chance = random.Random(seed)
    history.run(chance.randrange(400))
    keyspace = history.engine.keyspace
    steps = 0
    for _ in range(4):
        then, now = look(history.engine, history.now), history.now
        image = keyspace.freeze(now, walk_step_bytes=1)
        pieces: list[bytes] = []
        turns = chance.choice([0, 1, 3, 30])
        for _ in command_steps(image, lambda piece, to=pieces: to.append(bytes(piece)), checksums=False):
            history.run(turns)
            steps += 1
        keyspace.release_image(image)
        again = Follower(now + 10_000_000)
        replay(b"".join(pieces), again)
        assert differences(then, look(again.engine, now)) == []
    assert steps > 4


def told(*lines, now=START_MS):
    engine = Engine()
    session = engine.create_session()
    for line in lines:
        engine.execute(session, line.encode().split(), now)
    return [b" ".join(words).decode() for _, words in commands_of(engine.keyspace, now)]


def test_a_stream_is_written_as_by_redis():
    assert told(
        "XADD s 1-1 a 1 b 2",
        "XADD s 3-0 x y",
        "XADD s 4-0 k v",
        "XDEL s 3-0",
        "XGROUP CREATE s g 0",
        "XGROUP CREATECONSUMER s g idle",
        "XREADGROUP GROUP g ann COUNT 1 STREAMS s >",
        "PEXPIREAT s 4102444800000",
        "XGROUP CREATE empty h 5-5 MKSTREAM",
        "SET k v",
    ) == [
        "XADD s 1-1 a 1 b 2",
        "XADD s 4-0 k v",
        "XSETID s 4-0 ENTRIESADDED 3 MAXDELETEDID 3-0",
        "XGROUP CREATE s g 1-1 ENTRIESREAD -1",
        f"XCLAIM s g ann 0 1-1 TIME {START_MS} RETRYCOUNT 1 JUSTID FORCE",
        "XGROUP CREATECONSUMER s g idle",
        "PEXPIREAT s 4102444800000",
        "XADD empty MAXLEN 0 0-1 x y",
        "XSETID empty 0-0 ENTRIESADDED 0 MAXDELETEDID 0-0",
        "XGROUP CREATE empty h 5-5 ENTRIESREAD -1",
        "SET k v",
    ]


def test_deleted_pending_entries_are_claimed_from_placeholders():
    lines = [
        "XADD s 1-0 f 1",
        "XADD s 2-0 f 2",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g ann STREAMS s >",
        "XDEL s 1-0",
    ]
    claim = "TIME 1700000000000 RETRYCOUNT 1 JUSTID FORCE"
    assert told(*lines) == [
        "XADD s 1-0 x y",
        "XADD s 2-0 x y",
        "XGROUP CREATE s g 0-0",
        f"XCLAIM s g ann 0 1-0 {claim}",
        f"XCLAIM s g ann 0 2-0 {claim}",
        "XTRIM s MAXLEN 0",
        "XSETID s 0-0",
        "XADD s 2-0 f 2",
        "XSETID s 2-0 ENTRIESADDED 2 MAXDELETEDID 1-0",
        "XGROUP SETID s g 2-0 ENTRIESREAD 2",
    ]


def test_unowned_entries_are_released_in_runs_of_equal_counts():
    ids = " ".join(f"{i}-0" for i in range(1, 101))
    lines = [*(f"XADD s {i}-0 f v" for i in range(1, 101)), "XGROUP CREATE s g 0"]
    lines += [f"XNACK s g FAIL IDS 100 {ids} FORCE", "XNACK s g FATAL IDS 1 3-0"]
    runs = [line.split(" ") for line in told(*lines) if line.startswith("XNACK")]
    assert [(int(words[5]), words[-2]) for words in runs] == [(64, "0"), (35, "0"), (1, str(2**63 - 1))]
    assert [word for words in runs for word in words[6:-3]] == [*ids.replace(" 3-0", "").split(), "3-0"]


def test_deleted_ids_above_the_last_one_survive_too():
    history = History(0)
    history.say(0, "XADD old 5-0 f v")
    stream = history.engine.keyspace.databases[0].stream(b"old")
    stream.max_deleted_ms = 9  # as servers up to 7.0 leave it when XSETID goes back
    again = Follower(history.now)
    again.repeat(commands_of(history.engine.keyspace, history.now))
    assert differences(look(history.engine, history.now), look(again.engine, history.now)) == []


def test_expired_keys_are_left_out():
    assert told("SET k v PX 10", "SET l v") == ["SET k v", f"PEXPIREAT k {START_MS + 10}", "SET l v"]
    engine = Engine()
    engine.execute(engine.create_session(), [b"SET", b"k", b"v", b"PX", b"10"], START_MS)
    assert list(commands_of(engine.keyspace, START_MS + 10)) == []


def test_records_are_written_piece_by_piece():
    history = History(1)
    history.run(100)
    for i in range(20_000):
        history.engine.execute(history.sessions[0], [b"SET", b"%d" % i, bytes(90)], history.now)
    pieces, progress = [], []
    size = write_commands(
        history.engine.keyspace,
        lambda piece: pieces.append(bytes(piece)),
        history.now,
        timestamps=True,
        checksums=False,
        progress=progress.append,
    )
    whole = b"".join(pieces)
    assert size == len(whole) and max(map(len, pieces)) < 70_000
    assert progress == sorted(progress) and progress[-1] <= size and 1 <= len(progress) <= size >> 20
    stamp, _, records = whole.partition(b"\r\n")
    assert stamp == b"#TS:%d" % (history.now // 1000)
    again = Follower(history.now)
    replay(records, again)
    assert differences(look(history.engine, history.now), look(again.engine, history.now)) == []
