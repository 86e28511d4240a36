"""The near backend: what execute, add and wait do, from one thread and from several."""

import threading

import pytest

import headrace
from api.engine_clients import blocked
from headrace.api.backend import Stop
from headrace.errors import CodecError, CommandError, DatabaseClosed, WrongType
from support.waiting import wait_until


def in_thread(call):
    """Run call in a thread; what it gives, or raises, is asked for by the function returned."""
    box = []

    def run() -> None:
        try:
            box.append((True, call()))
        except Exception as error:
            box.append((False, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(20)
        assert not thread.is_alive()
        good, value = box[0]
        if not good:
            raise value
        return value

    return result


def test_replies_have_the_shapes_of_resp2(db) -> None:
    assert db.execute("SET", "k", 7) == b"OK"
    assert db.execute("GET", "k") == b"7"
    assert db.execute("GET", "none") is None
    assert db.execute("INCRBY", "k", -(2**63)) == 7 - 2**63
    assert db.execute("XADD", "s", "1-1", "a", "b") == b"1-1"
    assert db.execute("XRANGE", "s", "-", "+") == [[b"1-1", [b"a", b"b"]]]
    assert db.execute("XRANGE", "s", "5", "+") == []
    assert db.execute("XREAD", "STREAMS", "s", "1-1") is None


def test_a_refusal_is_raised_with_its_text(db) -> None:
    db.execute("SET", "k", "v")
    with pytest.raises(WrongType, match=r"^WRONGTYPE Operation against"):
        db.execute("XLEN", "k")
    with pytest.raises(CommandError, match="unknown command"):
        db.execute("NOSUCH")


def test_many_at_once_keep_refusals_in_their_places(db) -> None:
    got = db.backend.request_all([[b"SET", b"k", b"v"], [b"XLEN", b"k"], [b"GET", b"k"]])
    assert got[0] == b"OK" and isinstance(got[1], WrongType) and got[2] == b"v"


def test_an_atomic_batch_with_a_malformed_request_does_nothing(db) -> None:
    with pytest.raises(CommandError, match="wrong number of arguments"):
        db.backend.request_all([[b"SET", b"k", b"v"], [b"XLEN"]], atomic=True)
    assert db.execute("GET", "k") is None
    assert db.backend.request_all([[b"SET", b"k", b"v"], [b"GET", b"k"]], atomic=True) == [b"OK", b"v"]


def test_add_takes_text_and_numbers(db, clock) -> None:
    assert db.backend.add(b"s", b"*", {"n": 1, b"f": 0.5, "t": "ä"}) == b"1000000-0"
    assert db.execute("XRANGE", "s", "-", "+")[0][1] == [b"n", b"1", b"f", b"0.5", b"t", "ä".encode()]
    assert db.backend.add(b"none", b"*", {"n": 1}, [b"NOMKSTREAM"]) is None
    with pytest.raises(CodecError, match="None is not a field"):
        db.backend.add(b"s", b"*", {"n": None})
    with pytest.raises(CodecError, match="at least one field"):
        db.backend.add(b"s", b"*", {})


def test_add_many_adds_all_or_none(db) -> None:
    assert db.backend.add_many(b"s", ({"n": n} for n in range(3))) == [
        b"1000000-0",
        b"1000000-1",
        b"1000000-2",
    ]
    with pytest.raises(CodecError):
        db.backend.add_many(b"s", [{"n": 1}, {"n": None}])
    assert db.execute("XLEN", "s") == 3
    assert db.backend.add_many(b"s", []) == []
    db.execute("SET", "k", "v")
    with pytest.raises(WrongType):
        db.backend.add_many(b"k", [{"n": 1}])


def test_a_read_is_woken_by_anothers_add(db) -> None:
    read = in_thread(lambda: db.backend.execute_blocking_read([b"XREAD", b"STREAMS", b"s", b"$"], None))
    wait_until(lambda: blocked(db))
    db.backend.add(b"s", b"*", {"a": "b"})
    assert read() == [[b"s", [[b"1000000-0", [b"a", b"b"]]]]]


def test_a_batch_wakes_a_read_with_all_of_it(db) -> None:
    read = in_thread(lambda: db.backend.execute_blocking_read([b"XREAD", b"STREAMS", b"s", b"$"], None))
    wait_until(lambda: blocked(db))
    db.backend.add_many(b"s", [{"n": 1}, {"n": 2}])
    assert len(read()[0][1]) == 2


def test_a_read_ends_when_its_time_is_over(db, clock) -> None:
    read = in_thread(lambda: db.backend.execute_blocking_read([b"XREAD", b"STREAMS", b"s", b"$"], 60))
    wait_until(clock.sleeping_threads)
    clock.advance(seconds=59)
    assert blocked(db) == 1
    clock.advance(seconds=1)
    assert read() is None
    assert blocked(db) == 0


def test_stop_ends_a_read_and_a_pause(db, clock) -> None:
    stop = Stop()
    read = in_thread(lambda: db.backend.execute_blocking_read([b"XREAD", b"STREAMS", b"s", b"$"], None, stop))
    nap = in_thread(lambda: db.backend.sleep(1000, stop))
    wait_until(lambda: blocked(db) and clock.sleeping_threads())
    stop.set()
    assert read() is None
    assert nap() is True
    assert db.backend.execute_blocking_read([b"XREAD", b"STREAMS", b"s", b"$"], None, stop) is None


def test_a_pause_goes_by_the_clock(db, clock) -> None:
    nap = in_thread(lambda: db.backend.sleep(10))
    wait_until(clock.sleeping_threads)
    clock.advance(seconds=10)
    assert nap() is False


def test_closing_ends_all_waits_with_an_error(db, clock) -> None:
    read = in_thread(lambda: db.backend.execute_blocking_read([b"XREAD", b"STREAMS", b"s", b"$"], None))
    nap = in_thread(lambda: db.backend.sleep(10))
    wait_until(lambda: blocked(db) and clock.sleeping_threads())
    db.close()
    for wait in (read, nap):
        with pytest.raises(DatabaseClosed, match="closed"):
            wait()
    with pytest.raises(DatabaseClosed):
        db.execute("PING")
    db.close()


def test_sessions_with_a_state_are_not_reused(db) -> None:
    db.backend.request(b"SELECT", b"1")
    db.execute("SET", "k", "v")
    assert db.execute("DBSIZE") == 1
    db.backend.request(b"MULTI")
    assert db.execute("GET", "k") == b"v"


def test_client_kill_ends_a_wait(db) -> None:
    read = in_thread(lambda: db.backend.execute_blocking_read([b"XREAD", b"STREAMS", b"s", b"$"], None))
    wait_until(lambda: blocked(db))
    assert db.execute("CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal") >= 1
    with pytest.raises(headrace.HeadraceError, match="CLIENT KILL"):
        read()


def test_what_a_pause_holds_back_is_refused_in_a_batch(db, clock) -> None:
    db.execute("CLIENT", "PAUSE", 5000, "WRITE")
    with pytest.raises(CommandError, match="CLIENT PAUSE"):
        db.backend.add_many(b"s", [{"n": 1}])
    got = db.backend.request_all([[b"SET", b"k", b"v"], [b"GET", b"k"]])
    assert "CLIENT PAUSE" in str(got[0])
    add = in_thread(lambda: db.backend.add(b"s", b"*", {"n": 1}))
    wait_until(lambda: db.backend.engine.write_gate.paused_sessions)
    clock.advance(seconds=6)
    assert add() == b"1006000-0"
    assert db.execute("XLEN", "s") == 1
    assert db.execute("EXISTS", "k") == 0


def test_a_read_that_would_wait_does_not_in_a_batch(db) -> None:
    read = [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"]
    assert db.backend.request_all([read, [b"PING"]]) == [None, b"PONG"]
    assert db.backend.request_all([read, [b"PING"]], atomic=True) == [None, b"PONG"]


def test_for_ever_may_be_said_as_infinity(db) -> None:
    stop = Stop()
    read = in_thread(
        lambda: db.backend.execute_blocking_read([b"XREAD", b"STREAMS", b"s", b"$"], float("inf"), stop)
    )
    nap = in_thread(lambda: db.backend.sleep(float("inf"), stop))
    wait_until(lambda: blocked(db) == 1)
    stop.set()
    assert (read(), nap()) == (None, True)
