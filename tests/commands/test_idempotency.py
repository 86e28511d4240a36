"""XADD with IDMP and IDMPAUTO: what is a duplicate, what is refused, and when it is forgotten."""

import pytest

from commands.idempotency_seen import length, memory

INVALID = "-ERR Invalid stream ID specified as stream command argument"
NOT_INTEGER = "-ERR value is not an integer or out of range"
WRONG_TYPE = "-WRONGTYPE Operation against a key holding the wrong kind of value"
TWICE = "-ERR syntax error, IDMP/IDMPAUTO specified multiple times"
CHOSEN = "-ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"
NO_PID = "-ERR syntax error, IDMP requires a non-empty producer ID"
NO_IID = "-ERR syntax error, IDMP requires a non-empty idempotent ID"
NO_AUTO_PID = "-ERR syntax error, IDMPAUTO requires a non-empty producer ID"
ARITY = "-ERR wrong number of arguments for 'xadd' command"
EXHAUSTED = "-ERR The stream has exhausted the last possible ID, unable to add more items"
LAST = "18446744073709551615"


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


def test_a_duplicate_neither_wakes_readers_nor_invalidates_watches(talk):
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


def test_while_paused_the_engine_needs_no_tick_before_the_pause_ends(talk):
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


# ---- events


def test_new_ones_tell_and_duplicates_do_not(talk):
    talk("CONFIG SET notify-keyspace-events KEA")
    talk("PSUBSCRIBE __keyevent*", client="b")
    heard = talk.clients["b"].reply
    heard.take()
    talk("XADD s IDMP p 1 * f v")
    talk("XADD s IDMP p 2 MAXLEN 1 * f v")
    assert heard.take().count(b"pmessage") == 3
    talk("XADD s IDMP p 2 MAXLEN 0 * f v")
    talk("XCFGSET s IDMP-DURATION 5")
    talk("XIDMPRECORD s p 9 1000-1")
    assert heard.take() == b""
