"""SAVE, BGSAVE and their like call the server; WAITAOF waits until the caller's own writes are synced.

A log is played here by hand: commit() takes the effects and moves the offset on, sync() says how far the
disk is.
"""

import pytest

from headrace.commands.server.saving import OtherChildRunning
from headrace.commands.server_interface import ServerInterface
from headrace.engine.engine import Engine

NO_LOG = "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."


class Logging(ServerInterface):
    """A server whose log has the length and the synced length that the test sets."""

    def __init__(self):
        super().__init__()
        self.synced = 0
        self.asked = []

    def synced_log_offset(self):
        return self.synced

    def save(self, now_ms):
        self.asked.append(("save", now_ms))

    def background_save(self, schedule):
        self.asked.append(("bgsave", schedule))
        if not schedule:
            raise OtherChildRunning()
        return b"Background saving scheduled"

    def last_save_s(self):
        return 77

    def rewrite_log(self):
        return b"Background append only file rewriting started"


@pytest.fixture
def logging(talk):
    """A conversation with an engine that has a log."""
    talk.server = Logging()
    talk.engine = Engine(server=talk.server)
    talk.engine.set_effect_recording(True)
    return talk


def commit(talk):
    """Write what there is to the log: every effect makes it 100 bytes longer."""
    talk.engine.effects.log_offset += 100 * len(talk.engine.effects.take())


def sync(talk):
    """All that was committed is on the disk."""
    talk.server.synced = talk.engine.effects.log_offset
    talk.engine.on_log_synced(talk.now)


def test_who_wrote_nothing_does_not_wait(logging):
    assert logging("WAITAOF 1 0 0") == [1, 0]
    logging("SET k v", client="b")
    assert logging("WAITAOF 1 0 0") == [1, 0]
    logging("GET k")
    assert logging("WAITAOF 1 0 0") == [1, 0]


def test_a_write_is_waited_for_until_it_is_synced(logging):
    logging("SET k v")
    assert logging("WAITAOF 1 0 0") == "(waits)"  # in the same turn: not even committed
    sync(logging)
    assert logging.heard("a") == "(waits)"
    commit(logging)
    logging.engine.on_log_synced(logging.now)
    assert logging.heard("a") == "(waits)"
    sync(logging)
    assert logging.heard("a") == [1, 0]
    assert logging("WAITAOF 1 0 0") == [1, 0]


def test_a_sync_of_what_came_before_is_not_enough(logging):
    logging("SET k 1", client="b")
    commit(logging)
    logging("SET k 2")
    commit(logging)
    logging.say(["WAITAOF", "1", "0", "0"], "a")
    logging.server.synced = 100
    logging.engine.on_log_synced(logging.now)
    assert logging.heard("a") == "(waits)"
    assert logging("WAITAOF 1 0 0", client="b") == [1, 0]
    sync(logging)
    assert logging.heard("a") == [1, 0]


def test_all_who_wait_are_woken_in_their_order(logging):
    for client in "abc":
        logging(f"SET {client} v", client=client)
        logging(f"SELECT {ord(client) - ord('a')}", client=client)
        assert logging("WAITAOF 1 0 0", client=client) == "(waits)"
    commit(logging)
    sync(logging)
    assert logging.order_served() == ["a", "b", "c"]


def test_the_answer_at_the_deadline_says_what_is_synced(logging):
    logging("SET k v")
    assert logging("WAITAOF 1 0 50") == "(waits)"
    logging.tick(1050)
    assert logging.heard("a") == [0, 0]
    commit(logging)
    sync(logging)
    assert logging("WAITAOF 1 1 50") == "(waits)"  # no replica ever comes
    logging.tick(1100)
    assert logging.heard("a") == [1, 0]


def test_in_a_transaction_it_says_how_things_stand(logging):
    logging("SET k v")
    logging("MULTI")
    logging("WAITAOF 1 0 0")
    assert logging("EXEC") == [[0, 0]]
    commit(logging)
    sync(logging)
    logging("MULTI")
    logging("SET k w")
    logging("WAITAOF 0 0 0")
    assert logging("EXEC") == ["OK", [0, 0]]


def test_what_a_woken_reader_changes_is_its_own_write(logging):
    logging("XGROUP CREATE s g $ MKSTREAM", client="b")
    assert logging("XREADGROUP GROUP g c BLOCK 0 STREAMS s >") == "(waits)"
    commit(logging)
    sync(logging)
    logging("XADD s 1-1 f v", client="b")
    assert logging.heard("a")[0][0] == "s"
    assert logging("WAITAOF 1 0 0") == "(waits)"


def test_without_a_log_nothing_is_waited_for(logging):
    logging("SET k v")
    assert logging("WAITAOF 1 0 0") == "(waits)"
    logging.server.synced = -1  # CONFIG SET appendonly no
    logging.engine.on_log_synced(logging.now)
    assert logging.heard("a") == NO_LOG
    assert logging("WAITAOF 1 0 0") == NO_LOG
    assert logging("WAITAOF 0 0 0") == [0, 0]


def test_a_client_that_goes_waits_no_more(logging):
    logging("SET k v")
    logging("WAITAOF 1 0 0")
    logging.engine.close(logging.clients["a"])
    assert logging.engine.keyspace.blocking.count == 0
    sync(logging)
    assert logging.engine.woken_sessions == []


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("2 0 0", "-ERR value is out of range, value must between 0 and 1"),
        ("-1 0 0", "-ERR value is out of range, value must between 0 and 1"),
        ("x x x", "-ERR value is not an integer or out of range"),
        ("0 -1 0", "-ERR value is out of range, must be positive"),
        ("0 x x", "-ERR value is out of range, must be positive"),
        ("0 0 x", "-ERR timeout is not an integer or out of range"),
        ("1 0 -1", "-ERR timeout is negative"),
    ],
)
def test_waitaof_refuses(talk, words, refusal):
    assert talk("WAITAOF " + words) == refusal


def test_the_host_is_asked_to_save(logging):
    assert logging("SAVE") == "OK"
    assert logging("BGSAVE SCHEDULE") == "Background saving scheduled"
    assert logging("BGSAVE").startswith("-ERR Another child process is active")
    assert logging("BGSAVE now") == "-ERR syntax error"
    assert logging("BGSAVE SCHEDULE SCHEDULE") == "-ERR syntax error"
    assert logging("LASTSAVE") == 77
    assert logging("BGREWRITEAOF") == "Background append only file rewriting started"
    assert logging.server.asked == [("save", 1000), ("bgsave", True), ("bgsave", False)]


@pytest.mark.parametrize("line", ["SAVE", "BGSAVE", "BGREWRITEAOF"])
def test_a_keyspace_without_a_directory_says_so(talk, line):
    assert "no data directory" in talk(line)


def test_save_is_no_part_of_a_transaction(logging):
    logging("MULTI")
    assert logging("SAVE") == "-ERR Command not allowed inside a transaction"
    assert logging("BGSAVE") == "QUEUED"
