"""Conversations: bytes in, bytes out, waits, channels, and the end from either side."""

import threading


def ask(engine_session, line: bytes) -> bytes:
    engine_session.send(line + b"\r\n")
    return engine_session.receive(0)


def test_requests_may_be_cut_anywhere_and_sent_ahead(db) -> None:
    talk = db.engine_session()
    whole = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nPING\r\n"
    for at in range(len(whole)):
        talk.send(whole[at : at + 1])
    assert talk.receive(0) == b"$2\r\nhi\r\n+PONG\r\n"
    assert talk.receive(0) == b""
    assert not talk.closed


def test_each_has_a_session_of_its_own(db) -> None:
    one, other = db.engine_session(), db.engine_session()
    assert ask(one, b"MULTI") == b"+OK\r\n"
    assert ask(one, b"SET k v") == b"+QUEUED\r\n"
    assert ask(other, b"GET k") == b"$-1\r\n"
    assert ask(one, b"EXEC") == b"*1\r\n+OK\r\n"
    assert ask(other, b"GET k") == b"$1\r\nv\r\n"


def test_what_stands_behind_a_wait_runs_when_the_wait_is_over(db) -> None:
    talk = db.engine_session()
    talk.send(b"XREAD BLOCK 0 STREAMS s $\r\nPING\r\n")
    assert talk.receive(0.01) == b""
    db.execute("XADD", "s", "1-1", "a", "b")
    assert talk.receive(5).endswith(b"+PONG\r\n")


def test_a_wake_may_wake_others(db) -> None:
    one, other = db.engine_session(), db.engine_session()
    one.send(b"XREAD BLOCK 0 STREAMS a $\r\nXADD b 1-1 x y\r\n")
    other.send(b"XREAD BLOCK 0 STREAMS b $\r\n")
    db.execute("XADD", "a", "1-1", "x", "y")
    assert b"1-1" in other.receive(5)


def test_receive_wakes_in_another_thread(db) -> None:
    talk = db.engine_session()
    talk.send(b"SUBSCRIBE news\r\n")
    assert b"subscribe" in talk.receive(0)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(talk.receive(20)))
    reader.start()
    db.execute("PUBLISH", "news", "hello")
    reader.join(20)
    assert b"hello" in got[0]


def test_on_answer_is_called_for_what_comes_later(db) -> None:
    called = threading.Event()
    talk = db.engine_session(called.set)
    talk.send(b"XREAD BLOCK 0 STREAMS s $\r\n")
    assert not called.is_set()
    db.execute("XADD", "s", "1-1", "a", "b")
    assert called.is_set()
    assert b"1-1" in talk.receive(0)


def test_it_ends_by_quit_by_kill_by_garbage_and_with_the_database(db) -> None:
    quitting, killed, garbled, last = (db.engine_session() for _ in range(4))
    quitting.send(b"QUIT\r\nPING\r\n")
    assert quitting.receive(0) == b"+OK\r\n"
    assert quitting.closed
    garbled.send(b"*1\r\n!\r\n")
    assert garbled.receive(0).startswith(b"-ERR Protocol error")
    assert garbled.closed
    number = int(ask(killed, b"CLIENT ID")[1:])
    db.execute("CLIENT", "KILL", "ID", number)
    assert killed.receive(None) == b""
    assert killed.closed
    db.close()
    assert last.receive(None) == b""
    assert last.closed


def test_close_leaves_nothing_behind(db) -> None:
    before = db.execute("CLIENT", "LIST").count(b"\n")
    talk = db.engine_session()
    talk.send(b"XREAD BLOCK 0 STREAMS s $\r\n")
    assert db.backend.engine.keyspace.blocking.count == 1
    talk.close()
    talk.close()
    assert talk.closed
    assert db.backend.engine.keyspace.blocking.count == 0
    assert db.execute("CLIENT", "LIST").count(b"\n") == before
    assert talk.receive(None) == b""
