"""XARROW: what it answers, when it stops, and what it refuses."""

import pyarrow as pa
import pytest

from headrace.arrow import growable_buffer

PAIR = pa.schema([("dev", pa.string()), ("temp", pa.float64())])
COLUMNS = "COLUMNS 2 dev UTF8 temp FLOAT64"


def batch(reply, schema=PAIR):
    """The record batch of an answer."""
    made = pa.ipc.read_record_batch(reply[-1].encode("utf-8", "surrogateescape"), schema)
    made.validate(full=True)
    assert made.num_rows == reply[4]
    return made


@pytest.fixture
def nine(talk):
    """Entries 1-0 to 9-0, two to a node."""
    talk.node_entries(2)
    for i in range(1, 10):
        talk(f"XADD s {i}-0 dev d{i} temp {i / 4}")
    talk.effects()
    return talk


def test_a_range_comes_as_columns(nine):
    reply = nine("XARROW s 3 (6-0 " + COLUMNS)
    assert reply[:5] == ["5-0", 0, 0, 0, 3]
    assert batch(reply).to_pydict() == {"dev": ["d3", "d4", "d5"], "temp": [0.75, 1.0, 1.25]}
    assert nine.effects() == []


def test_every_type_says_what_it_is(talk):
    talk.words("XADD", "s", "1500-7", "n", "12", "f", "0.5", "b", "yes", "t", "grüße", "x", b"\xff")
    types = {
        "ID": pa.string(),
        "TIMESTAMP": pa.timestamp("us"),
        "SEQUENCE": pa.int64(),
        "BINARYFIELDS": pa.map_(pa.binary(), pa.binary()),
        "CORRUPT": pa.string(),
    }
    of_fields = [("n", f"INT{bits}", getattr(pa, f"int{bits}")()) for bits in (8, 16, 32, 64)]
    of_fields += [("f", "FLOAT32", pa.float32()), ("f", "FLOAT64", pa.float64()), ("b", "BOOL", pa.bool_())]
    of_fields += [("t", "UTF8", pa.string()), ("x", "BINARY", pa.binary())]
    of_fields += [("n", "EPOCH_MS", pa.timestamp("us")), ("n", "EPOCH_S", pa.timestamp("us"))]
    found = []
    for name, word, kind in [("*", word, kind) for word, kind in types.items()] + of_fields:
        reply = talk.words("XARROW", "s", "-", "+", "COLUMNS", "1", name, word)
        [value] = batch(reply, pa.schema([("v", kind)])).column("v")
        found.append(value.value if pa.types.is_timestamp(kind) else value.as_py())
    fields = [(b"n", b"12"), (b"f", b"0.5"), (b"b", b"yes"), (b"t", "grüße".encode()), (b"x", b"\xff")]
    assert found[:5] == ["1500-7", 1_500_000, 7, fields, None]
    assert found[5:] == [12, 12, 12, 12, 0.5, 0.5, True, "grüße", b"\xff", 12_000, 12_000_000]


def test_the_answer_says_whether_there_may_be_more(nine):
    assert nine("XARROW s - + COUNT 4 " + COLUMNS)[:5] == ["4-0", 0, 1, 0, 4]
    assert nine("XARROW s (4 + COUNT 4 " + COLUMNS)[:5] == ["8-0", 0, 1, 0, 4]
    assert nine("XARROW s (8 + COUNT 4 " + COLUMNS)[:5] == ["9-0", 0, 0, 0, 1]
    assert nine("XARROW s (9 + COUNT 4 " + COLUMNS)[:5] == [None, 0, 0, 0, 0]
    assert nine("XARROW none - + " + COLUMNS)[:5] == [None, 0, 0, 0, 0]
    assert nine("XARROW none 5 + ANCHOR " + COLUMNS)[:5] == [None, 1, 0, 0, 0]


def test_no_count_makes_a_batch_too_long(talk):
    for i in range(25_000):
        talk.say(("XADD", "s", f"{i + 1}-0", "n", str(i)), "a")
    talk.clients["a"].reply.take()
    reply = talk("XARROW s - + COUNT 9000000000000000000 COLUMNS 1 n INT64")
    assert reply[:5] == ["20000-0", 0, 1, 0, 20_000]
    for i in range(10):
        talk.words("XADD", "t", f"{i + 1}-0", "pad", "x" * 1_000_000)
    last, _, more, _, rows, message = talk("XARROW t - + COLUMNS 1 pad UTF8")
    assert more == 1 and 0 < rows < 10 and last == f"{rows}-0" and len(message) < 6_000_000


@pytest.mark.parametrize("deleted", [[], range(3, 400, 3)])
def test_names_that_a_node_has_once_count_where_they_stand_in_each_row(talk, deleted):
    talk.node_entries(0)
    talk.engine.keyspace.settings.stream_node_max_bytes = 0
    for i in range(400):
        talk.words("XADD", "s", f"{i + 1}-0", "n" * 20_000, "1")
    talk.words("XDEL", "s", *[f"{i}-0" for i in deleted], "9999-0")  # runs of two are not worth it
    _, _, more, _, rows, message = talk("XARROW s - + COLUMNS 1 * FIELDS")
    assert more == 1 and 100 <= rows < 110 and len(message) < 2_300_000
    columns = "COLUMNS 1 {} UTF8".format("n" * 20_000)
    assert talk("XARROW s - + " + columns)[2:5] == [0, 0, 400 - len(deleted)]


def test_the_anchor_is_left_out_or_reported_missing(nine):
    assert nine("XARROW s 4-0 + ANCHOR COUNT 2 " + COLUMNS)[:5] == ["6-0", 0, 1, 0, 2]
    assert nine("XARROW s 9-0 + ANCHOR " + COLUMNS)[:5] == [None, 0, 0, 0, 0]
    nine("XDEL s 4-0")
    reply = nine("XARROW s 4-0 + ANCHOR COUNT 2 " + COLUMNS)
    assert reply[:5] == ["6-0", 1, 1, 0, 2]
    assert batch(reply).column("dev").to_pylist() == ["d5", "d6"]


def test_the_modes_differ_in_what_becomes_of_a_bad_value(nine):
    nine("XADD s 10-0 dev d10 temp warm")
    nine("XADD s 11-0 dev d11")
    kept = nine("XARROW s 9 + MODE permissive " + COLUMNS)
    assert batch(kept).to_pydict() == {"dev": ["d9", "d10", "d11"], "temp": [2.25, None, None]}
    assert len(kept) == 7 and kept[5] == [0, 1]  # of these nulls one is a value that does not fit
    assert len(nine("XARROW s 11 + " + COLUMNS)) == 6
    dropped = nine("XARROW s 9 + MODE DROPMALFORMED COLUMNS 2 dev UTF8 temp FLOAT64!")
    assert dropped[:5] == ["11-0", 0, 0, 2, 1]
    refused = nine("XARROW s 9 + MODE FAILFAST " + COLUMNS)
    assert refused.startswith("-MALFORMED stream 's', entry 10-0: field 'temp' is missing or does not fit")
    refused = nine("XARROW s 11 + COLUMNS 2 dev UTF8 temp FLOAT64!")
    assert refused.startswith("-MALFORMED stream 's', entry 11-0: field 'temp'")
    corrupt = nine.words("XARROW", "s", "10", "10", "COLUMNS", "2", "temp", "FLOAT64", "*", "CORRUPT")
    [row] = batch(corrupt, pa.schema([("temp", pa.float64()), ("c", pa.string())])).to_pylist()
    assert row == {"temp": None, "c": '{"id": "10-0", "fields": {"dev": "d10", "temp": "warm"}}'}


def test_a_failed_request_returns_its_buffers_to_the_pool(talk):
    talk(f"XADD s 1-0 dev {'x' * 1000} temp 1")
    talk("XADD s 2-0 dev d temp warm")
    pool = [growable_buffer.acquire() for _ in range(100)]  # held: the pool is empty
    assert talk("XARROW s - + MODE FAILFAST " + COLUMNS).startswith("-MALFORMED")
    returned = [growable_buffer.acquire() for _ in range(100)]
    assert max(each.cap for each in returned) > 1000
    del pool


def test_a_map_of_text_shows_the_bytes_that_are_not_utf8_and_counts_its_entry(talk):
    talk.words("XADD", "s", "1-0", "a", b"x\xff", b"\xc3", "y")
    shown = pa.schema([("f", pa.map_(pa.string(), pa.string()))])
    reply = talk("XARROW s - + COLUMNS 1 * FIELDS!")
    assert batch(reply, shown).to_pylist() == [{"f": [("a", "x\\xff"), ("\\xc3", "y")]}]
    assert reply[5] == [1]
    assert talk("XARROW s - + MODE DROPMALFORMED COLUMNS 1 * FIELDS")[3:5] == [1, 0]
    refused = talk("XARROW s - + MODE FAILFAST COLUMNS 1 * FIELDS")
    assert refused.startswith("-MALFORMED stream 's', entry 1-0: a name or value is not UTF-8")
    exact = pa.schema([("f", pa.map_(pa.binary(), pa.binary()))])
    reply = talk("XARROW s - + COLUMNS 1 * BINARYFIELDS")
    assert batch(reply, exact).to_pylist() == [{"f": [(b"a", b"x\xff"), (b"\xc3", b"y")]}]
    values = pa.schema([("f", pa.map_(pa.string(), pa.binary()))])
    reply = talk("XARROW s - + COLUMNS 1 * BINARYVALUES")
    assert batch(reply, values).to_pylist() == [{"f": [("a", b"x\xff"), ("\\xc3", b"y")]}]


def test_no_column_at_all_counts_rows(nine):
    assert nine("XARROW s - + COLUMNS 0")[4] == 9


MANY = " ".join(f"f{i} UTF8" for i in range(1001))


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("- +", "-ERR wrong number of arguments for 'xarrow' command"),
        ("- + COLUMNS", "-ERR wrong number of arguments for 'xarrow' command"),
        ("- + COUNT 5", "-ERR syntax error"),
        ("- + COLUMNS x", "-ERR value is not an integer or out of range"),
        ("- + COLUMNS 1 dev", "-ERR COLUMNS does not match the columns that follow"),
        ("- + COLUMNS 1 dev UTF8 temp", "-ERR COLUMNS does not match the columns that follow"),
        ("- + COLUMNS -1 dev UTF8", "-ERR COLUMNS does not match the columns that follow"),
        (
            "- + COLUMNS 9223372036854775807 dev UTF8",
            "-ERR COLUMNS does not match the columns that follow",
        ),
        (
            "- + COLUMNS 4611686018427387905 dev UTF8",
            "-ERR COLUMNS does not match the columns that follow",
        ),
        (f"- + COLUMNS 1001 {MANY}", "-ERR COLUMNS takes at most 1000 pairs of a name and a type"),
        ("- + COLUMNS 1 dev DECIMAL", "-ERR COLUMNS has no type 'DECIMAL'"),
        ("- + COLUMNS 1 dev UTF8!!", "-ERR COLUMNS has no type 'UTF8!!'"),
        ("- + COLUMNS 1 dev ID", "-ERR a column of type ID is of the whole entry: name it *"),
        ("- + COLUMNS 2 dev UTF8 dev INT64", "-ERR COLUMNS asks for 'dev' twice"),
        (f"- + COLUMNS 1 dev {'X' * 5000}", f"-ERR COLUMNS has no type '{'X' * 60}'"),
        ("- + COUNT 0 COLUMNS 1 dev UTF8", "-ERR COUNT must be positive"),
        ("- + COUNT many COLUMNS 1 dev UTF8", "-ERR value is not an integer or out of range"),
        ("- + MODE STRICT COLUMNS 1 dev UTF8", "-ERR MODE must be PERMISSIVE, DROPMALFORMED or FAILFAST"),
        ("- + QUICKLY COLUMNS 1 dev UTF8", "-ERR syntax error"),
        ("x + COLUMNS 1 dev UTF8", "-ERR Invalid stream ID specified as stream command argument"),
    ],
)
def test_what_cannot_be_answered_is_refused(nine, words, refusal):
    assert nine(f"XARROW s {words}") == refusal


def test_parts_of_the_entry_are_asked_for_once(nine):
    said = nine.words("XARROW", "s", "-", "+", "COLUMNS", "2", "*", "FIELDS", "*", "BINARYFIELDS")
    assert said == "-ERR COLUMNS asks for 'BINARYFIELDS' twice"


def test_a_key_that_is_no_stream_is_refused(talk):
    talk("SET text hello")
    assert talk("XARROW text - + " + COLUMNS).startswith("-WRONGTYPE")


def test_it_is_declared_as_ours(talk):
    [[name, arity, flags, first, last, step, *_]] = talk("COMMAND INFO XARROW")
    assert (name, arity, flags, first, last, step) == ("xarrow", -6, ["readonly"], 1, 1, 1)
