"""Idempotent producers in the log: what they leave there and take back, by XADD, XCFGSET and XIDMPRECORD."""

from random import Random

import pytest

from commands.idempotency_seen import length, memory

INVALID = "-ERR Invalid stream ID specified as stream command argument"
SYNTAX = "-ERR syntax error"
NOT_INTEGER = "-ERR value is not an integer or out of range"
WRONG_TYPE = "-WRONGTYPE Operation against a key holding the wrong kind of value"
NO_KEY = "-ERR no such key"


def from_log(talk, line):
    """Say a line as a log or a master says it."""
    if "log" not in talk.clients:
        talk.clients["log"] = talk.engine.create_session()
        talk.clients["log"].replayed = True
    return talk(line, client="log")


def test_a_new_one_is_recorded_with_its_id_and_a_duplicate_as_it_came(talk):
    talk("XADD s IDMP p 1 MAXLEN ~ 10 * f v")
    talk("XADD s IDMP p 1 MAXLEN ~ 10 * f v")
    talk("XADD s NOMKSTREAM IDMPAUTO p * f v")
    assert talk.effects() == [
        "XADD s IDMP p 1 MAXLEN = 1 1000-0 f v",
        "XADD s IDMP p 1 MAXLEN ~ 10 * f v",
        "XADD s NOMKSTREAM IDMPAUTO p 1000-1 f v",
    ]


def test_each_counts_as_a_change(talk):
    before = talk.engine.keyspace.changes
    talk("XADD s IDMP p 1 * f v")
    talk("XADD s IDMP p 1 * f v")
    assert talk.engine.keyspace.changes == before + 2


def test_a_log_makes_the_same_stream(talk):
    for line in ["IDMP p 1 * f v", "IDMP p 1 * f v", "IDMPAUTO q * a 1 b 2", "IDMPAUTO q * b 2 a 1"]:
        talk(f"XADD s {line}")
    log = talk.effects()
    before = memory(talk), talk("XRANGE s - +")
    talk("DEL s")
    talk.now = 9000
    for line in log:
        assert from_log(talk, line) in ("1000-0", "1000-1")
    assert (memory(talk), talk("XRANGE s - +")) == before
    assert talk("XADD s IDMPAUTO q * b 2 a 1") == "1000-1"


def test_what_a_log_gives_an_id_is_new_whatever_is_remembered_here(talk):
    talk("XADD s IDMP p 1 * f v")
    assert from_log(talk, "XADD s IDMP p 1 2000-0 f v") == "2000-0"
    assert talk("XADD s IDMP p 1 * f v") == "2000-0"
    assert memory(talk) == (1, 1, 2, 1)


def test_a_duplicate_in_a_log_is_never_added(talk):
    assert from_log(talk, "XADD s IDMP p 1 * f v") is None
    assert talk("EXISTS s") == 0
    talk("XADD s 5-0 f v")
    assert from_log(talk, "XADD s IDMP p 1 * f v") is None
    assert length(talk) == 1


def test_a_log_may_say_limit_with_an_exact_trim(talk):
    for i in range(1, 6):
        talk(f"XADD s {i}-0 f v")
    assert from_log(talk, "XADD s MAXLEN = 5 LIMIT 1 6-0 f v") == "6-0"
    assert from_log(talk, "XTRIM s MAXLEN = 2 LIMIT 1") == 3
    assert from_log(talk, "XTRIM s MINID = 6 LIMIT 1") == 1


def any_line(random):
    """A command that may add, delete, trim or forget, and a group that reads meanwhile."""
    policy = random.choice(["", " KEEPREF", " DELREF", " ACKED"])
    trim = random.choice(
        ["", "", " MAXLEN 3", " MAXLEN ~ 4 LIMIT 3", " MINID ~ {old} LIMIT 2", " MINID {old}"]
    )
    limit = random.choice(["", " LIMIT 2"])
    idmp = random.choice(["", " IDMP {pid} {n}", " IDMP {pid} {n}", " IDMPAUTO {pid}"])
    old, newer = random.randrange(1000, 1040), random.randrange(1000, 1040)
    line = random.choice(
        [f"XADD s{policy}{idmp}{trim} * n {{n}}"] * 5
        + [f"XDELEX s{policy} IDS 2 {{old}}-0 {newer}-0", f"XTRIM s MINID ~ {{old}}{policy}{limit}"]
        + [
            f"XTRIM s{policy} MAXLEN ~ 3{limit}",
            "XREADGROUP GROUP g ann COUNT 2 STREAMS s >",
            "XDEL s {old}-0",
        ]
        + ["XACK s g {old}-0", "XCFGSET s IDMP-MAXSIZE {m}", "XGROUP CREATE s g 0 MKSTREAM"]
        + ["XIDMPRECORD s {pid} {n} {old}-0", "XPENDING s g"]
    )
    pid, n, m = random.choice("pq"), random.randrange(4), random.randrange(2, 5)
    return line.format(pid=pid, n=n, m=m, old=old)


@pytest.mark.parametrize("seed", range(10))
def test_a_log_of_anything_makes_the_same_stream(talk, seed):
    random = Random(seed)
    replica = type(talk)()
    for one in (talk, replica):
        one.node_entries(3)
    for _ in range(300):
        if random.random() < 0.3:
            talk.now = replica.now = talk.now + 1
        talk(any_line(random))
        for words in talk.effects():
            told = from_log(replica, words)
            assert not str(told).startswith("-"), (words, told)
        assert replica("XRANGE s - +") == talk("XRANGE s - +")
        assert replica("XPENDING s g - + 99") == talk("XPENDING s g - + 99")
    assert replica("XINFO STREAM s") == talk("XINFO STREAM s")
    mine, theirs = (one.engine.keyspace.databases[0].stream(b"s").idempotency for one in (talk, replica))
    assert mine.items() == theirs.items()
    assert (mine.added_count, mine.duplicate_count) == (theirs.added_count, theirs.duplicate_count)
    assert mine.duplicate_count > 0 and mine.added_count > 10


def test_a_log_brings_back_what_clients_could_not_say(talk):
    talk("XADD s 1-0 f v")
    assert talk("XIDMPRECORD s p a 9-9") == "-ERR No such message in stream"
    assert from_log(talk, "XIDMPRECORD s p a 9-9") == "OK"
    assert talk("XIDMPRECORD s p a 1-0").startswith("-ERR IID already exists")
    assert from_log(talk, "XIDMPRECORD s p a 1-0") == "OK"
    assert from_log(talk, "XIDMPRECORD s p a 1-0") == "OK"
    assert memory(talk) == (1, 1, 3, 0)
    assert talk("XCFGSET s IIDS-ADDED 7") == "-ERR syntax error"
    assert from_log(talk, "XCFGSET s IIDS-ADDED 7 IIDS-DUPLICATES 4") == "OK"
    assert memory(talk) == (1, 1, 7, 4)


# ---- XCFGSET


def test_xcfgset_changes_a_stream_and_makes_it_forget(talk):
    talk("XADD s IDMP p 1 * f v")
    talk("XADD s IDMP p 1 * f v")
    talk.effects()
    assert talk("XCFGSET s IDMP-DURATION 2") == "OK"
    assert memory(talk) == (0, 0, 1, 1)
    assert talk("XADD s IDMP p 1 * f v") == "1000-1"
    assert talk("XCFGSET s idmp-maxsize 1 idmp-duration 3") == "OK"
    talk("XADD s IDMP p 2 * f v")
    talk("XADD s IDMP p 3 * f v")
    assert memory(talk) == (1, 1, 4, 1)
    assert [line for line in talk.effects() if line.startswith("XCFGSET")] == [
        "XCFGSET s IDMP-DURATION 2",
        "XCFGSET s idmp-maxsize 1 idmp-duration 3",
    ]
    talk.tick(3999)
    assert memory(talk)[1] == 1
    talk.tick(5000)
    assert memory(talk)[1] == 0


def test_xcfgset_of_the_same_values_does_nothing(talk):
    talk("XADD s IDMP p 1 * f v")
    talk.effects()
    before = talk.engine.keyspace.changes
    assert talk("XCFGSET s IDMP-DURATION 100 IDMP-MAXSIZE 100") == "OK"
    assert memory(talk) == (1, 1, 1, 0)
    assert talk.effects() == []
    assert talk.engine.keyspace.changes == before


def test_xcfgset_invalidates_no_watch(talk):
    talk("XADD s * f v")
    talk("WATCH s", client="b")
    before = talk.engine.keyspace.changes
    talk("XCFGSET s IDMP-DURATION 2")
    assert talk.engine.keyspace.changes == before + 1
    talk("MULTI", client="b")
    assert talk("EXEC", client="b") == []


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("", "-ERR At least one parameter must be specified"),
        ("IDMP-DURATION", SYNTAX),
        ("IDMP-DURATION 5 IDMP-MAXSIZE", SYNTAX),
        ("OTHER 5", SYNTAX),
        ("IDMP-DURATION x", NOT_INTEGER),
        ("IDMP-DURATION 1.5", NOT_INTEGER),
        ("IDMP-DURATION 0", "-ERR IDMP-DURATION must be between 1 and 86400 seconds"),
        ("IDMP-DURATION 86401", "-ERR IDMP-DURATION must be between 1 and 86400 seconds"),
        ("IDMP-MAXSIZE 0", "-ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
        ("IDMP-MAXSIZE -1", "-ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
        ("IDMP-MAXSIZE 10001", "-ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
        ("IDMP-DURATION 5 IDMP-DURATION 5", "-ERR IDMP-DURATION specified multiple times"),
        ("IDMP-MAXSIZE 5 IDMP-MAXSIZE x", "-ERR IDMP-MAXSIZE specified multiple times"),
        ("IDMP-DURATION 0 IDMP-DURATION 5", "-ERR IDMP-DURATION must be between 1 and 86400 seconds"),
        ("IDMP-DURATION 5 IDMP-MAXSIZE 0", "-ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
    ],
)
def test_xcfgset_refusals_change_nothing(talk, words, answer):
    assert talk(f"XCFGSET s {words}") == NO_KEY
    talk("SET s x")
    assert talk(f"XCFGSET s {words}") == WRONG_TYPE
    talk("DEL s")
    talk("XADD s IDMP p 1 * f v")
    assert talk(f"XCFGSET s {words}") == answer
    assert memory(talk) == (1, 1, 1, 0)


# ---- XIDMPRECORD


def test_xidmprecord_remembers_for_an_entry_that_is_there(talk):
    talk("XADD s 5-0 f v")
    talk.effects()
    assert talk("XIDMPRECORD s p 1 5-0") == "OK"
    assert talk("XIDMPRECORD s p 1 5-0") == "OK"
    assert talk("XIDMPRECORD s p 2 5") == "OK"
    assert memory(talk) == (1, 2, 2, 0)
    assert talk.effects() == ["XIDMPRECORD s p 1 5-0", "XIDMPRECORD s p 2 5"]
    assert talk("XADD s IDMP p 1 * f v") == "5-0"


def test_xidmprecord_heeds_the_size(talk):
    talk("CONFIG SET stream-idmp-maxsize 2")
    talk("XADD s 5-0 f v")
    for i in range(3):
        talk(f"XIDMPRECORD s p {i} 5-0")
    assert memory(talk) == (1, 2, 3, 0)
    assert talk("XADD s IDMP p 0 * f v") == "1000-0"


def test_xidmprecord_refusals_in_their_order(talk):
    assert talk.words("XIDMPRECORD", "s", "", "", "x") == INVALID
    assert talk.words("XIDMPRECORD", "s", "", "", "-") == INVALID
    assert talk.words("XIDMPRECORD", "s", "", "", "1-1") == "-ERR producer ID must be non-empty"
    assert talk.words("XIDMPRECORD", "s", "p", "", "1-1") == "-ERR idempotent ID must be non-empty"
    assert talk("XIDMPRECORD s p 1 1-1") == NO_KEY
    talk("SET s x")
    assert talk("XIDMPRECORD s p 1 1-1") == WRONG_TYPE
    talk("DEL s")
    talk("XADD s 1-1 f v")
    talk("XADD s 1-2 f v")
    assert talk("XIDMPRECORD s p 1 1-3") == "-ERR No such message in stream"
    assert memory(talk) == (0, 0, 0, 0)
    talk("XIDMPRECORD s p 1 1-1")
    taken = "-ERR IID already exists for this producer with a different stream ID"
    assert talk("XIDMPRECORD s p 1 1-2") == taken
    talk("XDEL s 1-2")
    assert talk("XIDMPRECORD s p 1 1-2") == "-ERR No such message in stream"
    assert memory(talk) == (1, 1, 1, 0)
