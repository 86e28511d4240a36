"""Keys: what their commands leave in the log, in transactions and with blocked readers.

What they answer stands in the conformance tests.
"""

import pytest


@pytest.fixture
def stocked(talk):
    """A string that dies at 3000 s, one that does not, a stream; it is 1000 s now."""
    talk.now = 1_000_000
    talk("SET old v EXAT 3000")
    talk("SET k v")
    talk("XADD s 1-1 f v")
    talk.effects()
    return talk


@pytest.mark.parametrize(
    ("request_", "effects"),
    [
        ("DEL none", []),
        ("DEL k none old", ["DEL k none old"]),
        ("UNLINK k", ["UNLINK k"]),
        ("EXISTS k", []),
        ("TOUCH k", []),
        ("RENAME k n", ["RENAME k n"]),
        ("RENAME k k", []),
        ("RENAME none k", []),
        ("RENAMENX k n", ["RENAMENX k n"]),
        ("RENAMENX k old", []),
        ("COPY k n DB 1", ["COPY k n DB 1"]),
        ("COPY k old", []),
        ("COPY k old REPLACE", ["COPY k old REPLACE"]),
        ("MOVE k 1", ["MOVE k 1"]),
        ("MOVE none 1", []),
        ("EXPIRE k 10", ["PEXPIREAT k 1010000"]),
        ("PEXPIRE k 10", ["PEXPIREAT k 1000010"]),
        ("EXPIREAT k 2000", ["PEXPIREAT k 2000000"]),
        ("PEXPIREAT k 2000000", ["PEXPIREAT k 2000000"]),
        ("EXPIRE k 10 XX", []),
        ("EXPIRE none 10", []),
        ("EXPIRE k 0", ["DEL k"]),
        ("PEXPIREAT k 1000000", ["DEL k"]),
        ("PEXPIREAT k 1000001", ["PEXPIREAT k 1000001"]),
        ("PERSIST old", ["PERSIST old"]),
        ("PERSIST k", []),
        ("SWAPDB 0 1", ["SWAPDB 0 1"]),
        ("FLUSHDB", ["FLUSHDB"]),
        ("FLUSHALL ASYNC", ["FLUSHALL ASYNC"]),
        ("FLUSHALL x", []),
        ("SCAN 0", []),
    ],
)
def test_the_log_gets_what_does_not_depend_on_the_time_of_reading(stocked, request_, effects):
    stocked(request_)
    assert stocked.effects() == effects


@pytest.mark.parametrize(
    ("request_", "spoils"),
    [
        ("DEL k", True),
        ("TOUCH k", False),
        ("RENAME k n", True),
        ("RENAME old k", True),
        ("RENAMENX old k", False),
        ("COPY k n", False),
        ("COPY old k", False),
        ("COPY old k REPLACE", True),
        ("MOVE k 1", True),
        ("EXPIRE k 10", True),
        ("EXPIRE k 10 XX", False),
        ("EXPIRE k -1", True),
        ("PERSIST k", False),
        ("FLUSHDB", True),
        ("FLUSHALL", True),
        ("SWAPDB 0 1", True),
        ("SWAPDB 1 2", False),
    ],
)
def test_a_transaction_fails_when_a_watched_key_changes(stocked, request_, spoils):
    stocked("WATCH k")
    stocked(request_, client="b")
    stocked("MULTI")
    assert stocked("EXEC") == ("nil-array" if spoils else [])


@pytest.mark.parametrize("request_", ["RENAME s new", "RENAMENX s new", "COPY s new"])
def test_a_stream_that_comes_under_a_key_wakes_who_reads_it(stocked, request_):
    stocked("XREAD BLOCK 0 STREAMS new 0", client="b")
    stocked(request_)
    assert stocked.heard("b") == [["new", [["1-1", ["f", "v"]]]]]


@pytest.mark.parametrize("request_", ["MOVE s 1", "COPY s s DB 1", "SWAPDB 0 1"])
def test_a_stream_that_comes_from_another_database_wakes_who_reads_it(stocked, request_):
    stocked("SELECT 1", client="b")
    stocked("XREAD BLOCK 0 STREAMS s 0", client="b")
    stocked(request_)
    assert stocked.heard("b") == [["s", [["1-1", ["f", "v"]]]]]


def test_a_copied_stream_changes_on_its_own(stocked):
    stocked("COPY s t")
    stocked("XADD s 2-2 f v")
    stocked("XDEL t 1-1")
    assert stocked("XRANGE s - +") == [["1-1", ["f", "v"]], ["2-2", ["f", "v"]]]
    assert stocked("XRANGE t - +") == []


def test_time_to_live_is_rounded_to_the_nearest_second(stocked):
    stocked("PEXPIRE k 10499")
    assert [stocked("TTL k"), stocked("PTTL k")] == [10, 10499]
    stocked.now -= 1
    assert [stocked("TTL k"), stocked("PTTL k")] == [11, 10500]
    assert stocked("EXPIRETIME k") == 1010


def test_a_key_expires_at_its_time_for_every_command(stocked):
    stocked("PEXPIRE k 10")
    stocked("COPY old dies")
    stocked("PEXPIRE dies 10")
    stocked.now += 10
    assert stocked("DBSIZE") == 2
    assert stocked("EXISTS k dies") == 0
    assert stocked("TYPE k") == "none"
    assert stocked("TTL k") == -2
    assert stocked("PERSIST k") == 0
    assert stocked("EXPIRE k 10") == 0
    assert stocked("RENAME k n") == "-ERR no such key"
    assert stocked("RENAMENX old dies") == 1
    assert stocked("SET k v NX") == "OK"
    assert sorted(stocked("KEYS *")) == ["dies", "k", "s"]


def scanned(talk, *options):
    """All keys of a whole scan, and how many steps it took."""
    cursor, found, steps = "0", [], 0
    while True:
        cursor, keys = talk.words("SCAN", cursor, *options)
        found += keys
        steps += 1
        if cursor == "0":
            return found, steps


def test_a_scan_meets_every_key_once_in_steps_of_count(talk):
    for i in range(100):
        talk(f"SET key:{i} v")
    names = sorted(f"key:{i}" for i in range(100))
    assert (sorted(scanned(talk)[0]), scanned(talk)[1]) == (names, 10)
    assert (sorted(scanned(talk, "COUNT", "7")[0]), scanned(talk, "COUNT", "7")[1]) == (names, 15)
    assert scanned(talk, "COUNT", "1000") == (talk("KEYS *"), 1)


def test_a_scan_meets_what_stays_while_others_come_and_go(talk):
    for i in range(50):
        talk(f"SET stays:{i} v")
        talk(f"SET goes:{i} v")
    found = []
    cursor = "0"
    for step in range(1000):
        cursor, keys = talk.words("SCAN", cursor, "COUNT", "3")
        found += keys
        talk(f"DEL goes:{step % 50}")
        talk(f"SET comes:{step} v")
        if cursor == "0" or step > 40:
            break
    while cursor != "0":
        cursor, keys = talk.words("SCAN", cursor, "COUNT", "3")
        found += keys
    assert {f"stays:{i}" for i in range(50)} <= set(found)
    assert len(found) == len(set(found))


def test_a_scan_answers_only_what_is_asked_for(stocked):
    for i in range(20):
        stocked(f"SET a:{i} v")
        stocked(f"XADD b:{i} 1-1 f v")
    assert sorted(scanned(stocked, "TYPE", "stream")[0]) == sorted(["s", *[f"b:{i}" for i in range(20)]])
    assert sorted(scanned(stocked, "MATCH", "a:1?")[0]) == [f"a:1{i}" for i in range(10)]
    assert scanned(stocked, "MATCH", "a:*", "TYPE", "stream")[0] == []


def test_a_random_key_is_one_of_those_alive(stocked):
    stocked("PEXPIRE k 10")
    stocked.now += 10
    assert {stocked("RANDOMKEY") for _ in range(60)} == {"old", "s"}


def test_object_help_lists_every_subcommand(talk):
    lines = talk("OBJECT HELP")
    assert [line for line in lines if line.split()[0].isupper()][1:] == [
        "ENCODING key",
        "FREQ key",
        "IDLETIME key",
        "REFCOUNT key",
        "HELP",
    ]
