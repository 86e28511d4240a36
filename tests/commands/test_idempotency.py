"""Idempotent requests: XADD with IDMP and IDMPAUTO, XCFGSET, XIDMPRECORD, and what they leave in the log."""

from random import Random

import pytest

INVALID = "-ERR Invalid stream ID specified as stream command argument"
SYNTAX = "-ERR syntax error"
NOT_INTEGER = "-ERR value is not an integer or out of range"
WRONG_TYPE = "-WRONGTYPE Operation against a key holding the wrong kind of value"
NO_KEY = "-ERR no such key"
TWICE = "-ERR syntax error, IDMP/IDMPAUTO specified multiple times"
CHOSEN = "-ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"
NO_PID = "-ERR syntax error, IDMP requires a non-empty producer ID"
NO_IID = "-ERR syntax error, IDMP requires a non-empty idempotent ID"
NO_AUTO_PID = "-ERR syntax error, IDMPAUTO requires a non-empty producer ID"
ARITY = "-ERR wrong number of arguments for 'xadd' command"
EXHAUSTED = "-ERR The stream has exhausted the last possible ID, unable to add more items"
LAST = "18446744073709551615"


def from_log(talk, line):
    """Say a line as a log or a master says it."""
    if "log" not in talk.clients:
        talk.clients["log"] = talk.engine.session()
        talk.clients["log"].replayed = True
    return talk(line, client="log")


def memory(talk, key="s"):
    """(producers, iids, added, duplicates) of a stream."""
    one = talk.engine.keyspace.databases[0].stream(key.encode()).idempotency
    return (0, 0, 0, 0) if one is None else (one.producers(), one.tracked(), one.added, one.duplicates)


def length(talk):
    return talk("XLEN s")


# ---- duplicates


def test_the_same_request_again_answers_the_first_ones_id(talk):
    assert talk("XADD s IDMP p 1 * f v") == "1000-0"
    assert talk("XADD s IDMP p 1 * f v") == "1000-0"
    assert talk("XADD s IDMP p 1 * other pairs x y") == "1000-0"
    assert talk("XADD s IDMP p 2 * f v") == "1000-1"
    assert length(talk) == 2
    assert memory(talk) == (1, 2, 2, 2)


def test_a_duplicate_is_one_of_the_same_producer_and_stream(talk):
    assert talk("XADD s IDMP p 1 * f v") == "1000-0"
    assert talk("XADD s IDMP q 1 * f v") == "1000-1"
    assert talk("XADD s IDMP P 1 * f v") == "1000-2"
    assert talk("XADD t IDMP p 1 * f v") == "1000-0"
    assert memory(talk) == (3, 3, 3, 0)


def test_without_idmp_nothing_is_remembered(talk):
    talk("XADD s * f v")
    talk("XADD s * f v")
    assert length(talk) == 2
    assert memory(talk) == (0, 0, 0, 0)


def test_an_answer_in_resp3_is_a_bulk_string_too(talk):
    talk("HELLO 3")
    assert talk.raw("XADD s IDMP p 1 * f v") == b"$6\r\n1000-0\r\n"
    assert talk.raw("XADD s IDMP p 1 * f v") == b"$6\r\n1000-0\r\n"


def test_pairs_make_an_iid_in_any_order(talk):
    assert talk("XADD s IDMPAUTO p * a 1 b 2") == "1000-0"
    assert talk("XADD s IDMPAUTO p * b 2 a 1") == "1000-0"
    assert talk("XADD s IDMPAUTO p * a 2 b 1") == "1000-1"
    assert talk("XADD s IDMPAUTO p * a 1 b 2 a 1 b 2") == "1000-2"
    assert talk("XADD s IDMPAUTO q * a 1 b 2") == "1000-3"


def test_an_iid_said_and_one_made_of_pairs_share_a_name_space(talk):
    made = bytes.fromhex("6e95729ee727f0814aedffba55730079")
    assert talk("XADD s IDMPAUTO p * f v") == "1000-0"
    assert talk.words("XADD", "s", "IDMP", "p", made, "*", "x", "y") == "1000-0"


def test_pids_and_iids_hold_any_bytes(talk):
    assert talk.words("XADD", "s", "IDMP", b"\x00\xff", b"\r\n", "*", "f", "v") == "1000-0"
    assert talk.words("XADD", "s", "IDMP", b"\x00\xff", b"\r\n", "*", "f", "v") == "1000-0"
    assert talk.words("XADD", "s", "IDMP", b"\x00\xfe", b"\r\n", "*", "f", "v") == "1000-1"


def test_a_deleted_entry_is_a_duplicate_still(talk):
    talk("XADD s IDMP p 1 * f v")
    assert talk("XDEL s 1000-0") == 1
    assert talk("XADD s IDMP p 1 * f v") == "1000-0"
    talk("XADD s IDMP p 2 * f v")
    assert talk("XTRIM s MAXLEN 0") == 1
    assert talk("XADD s IDMP p 2 * f v") == "1000-1"
    assert length(talk) == 0


def test_a_deleted_stream_remembers_nothing(talk):
    talk("XADD s IDMP p 1 * f v")
    talk("DEL s")
    assert talk("XADD s IDMP p 1 * f v") == "1000-0"
    assert memory(talk) == (1, 1, 1, 0)


def test_a_duplicate_trims_nothing(talk):
    for i in range(4):
        talk(f"XADD s IDMP p {i} * f v")
    assert talk("XADD s IDMP p 3 MAXLEN 1 * f v") == "1000-3"
    assert length(talk) == 4
    assert talk("XADD s IDMP p 4 MAXLEN 1 * f v") == "1000-4"
    assert length(talk) == 1


def test_a_duplicate_neither_wakes_readers_nor_spoils_who_watches(talk):
    talk("XADD s IDMP p 1 * f v")
    talk("XREAD BLOCK 0 STREAMS s $", client="b")
    talk("WATCH s", client="c")
    talk("XADD s IDMP p 1 * f v")
    assert talk.heard("b") == "(waits)"
    talk("MULTI", client="c")
    assert talk("EXEC", client="c") == []


def test_a_new_one_wakes_readers(talk):
    talk("XADD s IDMP p 1 * f v")
    talk("XREAD BLOCK 0 STREAMS s $", client="b")
    talk("XADD s IDMP p 2 * f v")
    assert talk.heard("b") == [["s", [["1000-1", ["f", "v"]]]]]


def test_a_duplicate_is_answered_though_no_id_is_left(talk):
    talk("XADD s IDMP p 1 * f v")
    talk(f"XADD s {LAST}-{LAST} f v")
    assert talk("XADD s IDMP p 1 * f v") == "1000-0"
    assert talk("XADD s IDMP p 2 * f v") == EXHAUSTED


def test_who_fails_leaves_no_producer_behind(talk):
    talk(f"XADD s {LAST}-{LAST} f v")
    assert talk("XADD s IDMP p 1 * f v") == EXHAUSTED
    assert memory(talk) == (0, 0, 0, 0)


def test_a_stream_that_must_not_be_made_is_not(talk):
    assert talk("XADD s NOMKSTREAM IDMP p 1 * f v") is None
    assert talk("EXISTS s") == 0


# ---- parsing


@pytest.mark.parametrize(
    "options",
    [
        "IDMP p 1 MAXLEN 10 NOMKSTREAM",
        "NOMKSTREAM idmp p 1 MAXLEN ~ 10 LIMIT 5",
        "MINID = 5 KEEPREF Idmp p 1",
        "DELREF IDMPAUTO p NOMKSTREAM",
        "idmpauto p MAXLEN 10 acked",
    ],
)
def test_options_come_in_any_order_and_case(talk, options):
    talk("XADD s 5-0 f v")
    assert talk(f"XADD s {options} * f v") == "1000-0"
    assert talk(f"XADD s {options} * f v") == "1000-0"
    assert length(talk) == 2


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("IDMP p1 * f v", INVALID),
        ("IDMP p1 iid1 1-1 f v", CHOSEN),
        ("IDMP p1 iid1 5 f v", CHOSEN),
        ("IDMP p1 iid1 5-* f v", CHOSEN),
        ("IDMPAUTO p1 5-* f v", CHOSEN),
        ("IDMPAUTO p1 0-0 f v", CHOSEN),
        ("IDMPAUTO p1 bad f v", INVALID),
        ("IDMP p1 i IDMP p2 j * f v", TWICE),
        ("IDMP p1 i IDMP p1 i * f v", TWICE),
        ("IDMPAUTO p1 IDMP p2 i * f v", TWICE),
        ("IDMP p1 i IDMPAUTO p2 * f v", TWICE),
        ("IDMPAUTO p1 IDMPAUTO p1 * f v", TWICE),
        ("IDMP p1 i * f", ARITY),
        ("IDMP p1 i * f v w", ARITY),
        ("IDMP p1 i NOMKSTREAM", ARITY),
        ("MAXLEN 1 IDMPAUTO", INVALID),
        ("MAXLEN 1 IDMP p", INVALID),
        (
            "IDMP p1 i LIMIT 5 * f v",
            "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        ),
        ("IDMPAUTO p1 MAXLEN x * f v", NOT_INTEGER),
    ],
)
def test_refusals(talk, words, answer):
    assert talk(f"XADD s {words}") == answer
    assert talk("EXISTS s") == 0


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["IDMP", "", "i", "*", "f", "v"], NO_PID),
        (["IDMP", "p", "", "*", "f", "v"], NO_IID),
        (["IDMP", "", "", "*", "f", "v"], NO_PID),
        (["IDMPAUTO", "", "*", "f", "v"], NO_AUTO_PID),
        (["IDMP", "p", "i", "IDMPAUTO", "", "*", "f", "v"], TWICE),
    ],
)
def test_neither_pid_nor_iid_may_be_empty(talk, words, answer):
    assert talk.words("XADD", "s", *words) == answer


def test_a_key_of_another_type_is_refused(talk):
    talk("SET s x")
    assert talk("XADD s IDMP p 1 * f v") == WRONG_TYPE
    assert talk("XADD s IDMP p 1 7-7 f v") == CHOSEN


# ---- forgetting


def test_the_oldest_beyond_the_size_is_forgotten(talk):
    talk("CONFIG SET stream-idmp-maxsize 3")
    for i in range(4):
        talk(f"XADD s IDMP p {i} * f v")
    assert talk("XADD s IDMP p 1 * f v") == "1000-1"
    assert talk("XADD s IDMP p 0 * f v") == "1000-4"
    assert memory(talk) == (1, 3, 5, 1)


def test_iids_are_forgotten_by_the_tick_when_they_are_old_enough(talk):
    talk("CONFIG SET stream-idmp-duration 2")
    talk("XADD s IDMP p 1 * f v")
    talk.tick(2999)
    assert memory(talk) == (1, 1, 1, 0)
    talk.now = 10_000
    assert talk("XADD s IDMP p 1 * f v") == "1000-0", "nobody ticked"
    talk.tick(10_000)
    assert memory(talk) == (0, 0, 1, 1)
    assert talk("XADD s IDMP p 1 * f v") == "10000-0"


def test_the_engine_wants_a_tick_while_something_is_remembered(talk):
    talk("CONFIG SET stream-idmp-duration 2")
    assert talk.engine.next_deadline() == -1
    talk("XADD s IDMP p 1 * f v")
    for _ in range(10):
        at = talk.engine.next_deadline()
        assert at <= talk.now + 1000
        if at < 0:
            break
        talk.tick(max(at, talk.now + 1))
    assert memory(talk) == (0, 0, 1, 0)
    assert 3000 <= talk.now <= 4100


def test_while_paused_the_engine_wants_no_tick_for_what_it_will_not_do_before_the_pause_ends(talk):
    talk("XADD s IDMP p 1 * f v")
    talk("CLIENT PAUSE 5000")
    assert talk.engine.next_deadline() == 6000
    talk.tick(6000)
    assert 6000 < talk.engine.next_deadline() <= 7000


def test_settings_are_those_of_the_streams_birth(talk):
    talk("XADD old * f v")
    talk("CONFIG SET stream-idmp-duration 2 stream-idmp-maxsize 1")
    talk("XADD new * f v")
    for key in ("old", "new"):
        talk(f"XADD {key} IDMP p 1 * f v")
        talk(f"XADD {key} IDMP p 2 * f v")
    assert memory(talk, "old") == (1, 2, 2, 0)
    assert memory(talk, "new") == (1, 1, 2, 0)
    talk.tick(3000)
    assert memory(talk, "old") == (1, 2, 2, 0)
    assert memory(talk, "new") == (0, 0, 2, 0)


@pytest.mark.parametrize(("name", "most"), [("stream-idmp-duration", 86400), ("stream-idmp-maxsize", 10000)])
def test_the_two_directives_have_bounds(talk, name, most):
    refused = f"-ERR CONFIG SET failed (possibly related to argument '{name}')"
    refused += f" - argument must be between 1 and {most}"
    assert talk(f"CONFIG GET {name}") == [name, "100"]
    assert talk(f"CONFIG SET {name} {most}") == "OK"
    assert talk(f"CONFIG SET {name} {most + 1}") == f"{refused} inclusive"
    assert talk(f"CONFIG SET {name} 0") == f"{refused} inclusive"
    assert talk(f"CONFIG GET {name}") == [name, str(most)]


def test_a_copy_remembers_and_a_renamed_stream_too(talk):
    talk("XADD s IDMP p 1 * f v")
    talk("COPY s t")
    talk("RENAME s r")
    for key in ("t", "r"):
        assert talk(f"XADD {key} IDMP p 1 * f v") == "1000-0"
    talk("XADD t IDMP p 2 * f v")
    assert memory(talk, "t") == (1, 2, 2, 1)
    assert memory(talk, "r") == (1, 1, 1, 1)
    talk.tick(200_000)
    assert memory(talk, "t") == (0, 0, 2, 1)
    assert memory(talk, "r") == (0, 0, 1, 1)


# ---- the log


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
    assert (mine.added, mine.duplicates) == (theirs.added, theirs.duplicates)
    assert mine.duplicates > 0 and mine.added > 10


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


def test_xcfgset_spoils_nobody_who_watches(talk):
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


# ---- events


def test_new_ones_tell_and_duplicates_do_not(talk):
    talk("CONFIG SET notify-keyspace-events KEA")
    talk("PSUBSCRIBE __keyevent*", client="b")
    heard = talk.clients["b"].answer
    heard.take()
    talk("XADD s IDMP p 1 * f v")
    talk("XADD s IDMP p 2 MAXLEN 1 * f v")
    assert heard.take().count(b"pmessage") == 3
    talk("XADD s IDMP p 2 MAXLEN 0 * f v")
    talk("XCFGSET s IDMP-DURATION 5")
    talk("XIDMPRECORD s p 9 1000-1")
    assert heard.take() == b""


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
