"""Strings: what their commands leave in the log, in transactions and with blocked readers.

What they answer stands in the conformance tests.
"""

import pytest

STRING_TOO_LONG = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"


@pytest.mark.parametrize(
    ("request_", "effects"),
    [
        ("SET k v", ["SET k v"]),
        ("SET k v GET", ["SET k v"]),
        ("SET k v XX", []),
        ("SET old v NX", []),
        ("SET old v NX GET", []),
        ("SET k v EX 10", ["SET k v PXAT 1010000"]),
        ("SET k v PX 10 NX GET", ["SET k v PXAT 1000010"]),
        ("SET k v EXAT 2000", ["SET k v PXAT 2000000"]),
        ("SET old v KEEPTTL", ["SET old v KEEPTTL"]),
        ("SET k v KEEPTTL", ["SET k v"]),
        ("SETNX k v", ["SETNX k v"]),
        ("SETNX old v", []),
        ("SETEX k 10 v", ["SET k v PXAT 1010000"]),
        ("PSETEX k 10 v", ["SET k v PXAT 1000010"]),
        ("GETSET old v", ["SET old v"]),
        ("GETDEL old", ["DEL old"]),
        ("GETDEL none", []),
        ("GETEX old", []),
        ("GETEX old EX 10", ["PEXPIREAT old 1010000"]),
        ("GETEX old PERSIST", ["PERSIST old"]),
        ("GETEX n PERSIST", []),
        ("GETEX old EXAT 1", ["DEL old"]),
        ("GETEX none EX 10", []),
        ("MSET a 1 b 2", ["MSET a 1 b 2"]),
        ("MSETNX a 1 b 2", ["MSETNX a 1 b 2"]),
        ("MSETNX a 1 old 2", []),
        ("APPEND k v", ["APPEND k v"]),
        ("SETRANGE k 5 v", ["SETRANGE k 5 v"]),
        ("INCR n", ["INCR n"]),
        ("DECRBY n 3", ["DECRBY n 3"]),
        ("INCR old", []),
        ("INCRBYFLOAT n 0.5", ["SET n 1.5 KEEPTTL"]),
        ("INCRBYFLOAT k 3", ["SET k 3 KEEPTTL"]),
        ("GET old", []),
        ("MGET old n", []),
        ("SET old w IFEQ v", ["SET old w"]),
        ("SET old w IFNE v", []),
        ("SET old w IFNE x EX 10 GET", ["SET old w PXAT 1010000"]),
        ("SET old w IFEQ v KEEPTTL", ["SET old w KEEPTTL"]),
        ("SET k v IFNE v KEEPTTL", ["SET k v"]),
        ("SET k v IFEQ v", []),
        ("SET old w IFEQ v XX", ["SET old w"]),
        ("SET old w IFEQ v NX", []),
        ("DELEX old", ["DEL old"]),
        ("DELEX old IFEQ v", ["DEL old"]),
        ("DELEX old IFNE v", []),
        ("DELEX k IFNE v", []),
        ("DIGEST old", []),
        ("MSETEX 2 a 1 b 2", ["MSET a 1 b 2"]),
        ("MSETEX 2 a 1 old 2 NX", []),
        ("MSETEX 2 a 1 old 2 XX EX 1", []),
        ("MSETEX 1 a 1 PX 10", ["SET a 1 PXAT 1000010"]),
        (
            "MSETEX 2 a 1 b 2 EX 10 NX",
            ["MULTI", "SET a 1 PXAT 1010000", "SET b 2 PXAT 1010000", "EXEC"],
        ),
        ("MSETEX 2 a 1 old 2 KEEPTTL", ["MULTI", "SET a 1", "SET old 2 KEEPTTL", "EXEC"]),
        ("LCS old n", []),
    ],
)
def test_the_log_gets_what_does_not_depend_on_the_time_of_reading(talk, request_, effects):
    talk.now = 1_000_000
    talk("SET old v EXAT 3000")
    talk("SET n 1")
    talk.effects()
    talk(request_)
    assert talk.effects() == effects


def test_a_lifetime_is_counted_from_the_time_of_the_request(talk):
    talk.now = 1_000_000
    talk("SET k v PX 10")
    assert talk("PTTL k") == 10
    talk.now += 9
    assert talk("GET k") == "v"
    assert talk("PTTL k") == 1
    talk.now += 1
    assert talk("EXISTS k") == 0


def test_the_longest_lifetime_ends_with_the_last_millisecond_there_is(talk):
    talk.now = 1_000_000
    last = 2**63 - 1
    assert talk(f"SET k v PX {last - 1_000_000}") == "OK"
    assert talk("PEXPIRETIME k") == last
    assert talk(f"SET k v PX {last - 999_999}") == "-ERR invalid expire time in 'set' command"
    assert talk(f"SETEX k {last // 1000 - 999} v") == "-ERR invalid expire time in 'setex' command"
    assert talk(f"SETEX k {last // 1000 - 1000} v") == "OK"


@pytest.mark.parametrize(
    ("request_", "spoils"),
    [
        ("SET k w", True),
        ("SET k v", True),
        ("SET k w NX", False),
        ("GETSET k w", True),
        ("GETDEL k", True),
        ("GETEX k", False),
        ("GETEX k PERSIST", False),
        ("GETEX k EX 10", True),
        ("SET k w IFEQ 1", True),
        ("SET k w IFEQ x", False),
        ("DELEX k IFNE 1", False),
        ("DELEX k IFEQ 1", True),
        ("DIGEST k", False),
        ("MSETEX 2 a 1 k 2 NX", False),
        ("MSETEX 2 a 1 k 2 XX", False),
        ("MSETEX 2 a 1 k 2", True),
        ("MSET a 1 k 2", True),
        ("MSETNX a 1 k 2", False),
        ("APPEND k x", True),
        ("SETRANGE k 0 x", True),
        ("STRLEN k", False),
        ("INCR k", True),
        ("INCRBYFLOAT k 1", True),
        ("INCRBY k x", False),
    ],
)
def test_a_transaction_fails_when_a_watched_key_changes(talk, request_, spoils):
    talk("SET k 1")
    talk("WATCH k")
    talk(request_, client="b")
    talk("MULTI")
    assert talk("EXEC") == ("nil-array" if spoils else [])


def test_a_string_grown_in_place_is_not_grown_for_others(talk):
    talk("SET k abc")
    talk("APPEND k d")
    talk("COPY k copy")
    talk("APPEND k e")
    talk("SETRANGE copy 0 X")
    assert talk("MGET k copy") == ["abcde", "Xbcd"]


def test_the_longest_string_can_be_reached_and_not_passed(talk):
    largest = 512 * 1024 * 1024
    assert talk(f"SETRANGE k {largest} x") == STRING_TOO_LONG
    assert talk(f"SETRANGE k {largest - 1} xy") == STRING_TOO_LONG
    assert talk("EXISTS k") == 0
    assert talk(f"SETRANGE k {largest - 1} x") == largest
    assert talk("APPEND k x") == STRING_TOO_LONG
    assert talk("GETRANGE k -1 -1") == "x"
    assert talk("STRLEN k") == largest
