"""The commands of replication call the server's; here it is one that the test plays."""

from __future__ import annotations

import pytest

from headrace.commands.replication_interface import ReplicationInterface
from headrace.commands.server_interface import ServerInterface
from headrace.engine.engine import Engine
from headrace.errors import CommandError
from support.raw_redis import RawRedis
from support.redis_server import redis_server

HISTORY = "a" * 40


class PlayedReplication(ReplicationInterface):
    """A stream of 100 bytes for each effect; replicas acknowledge what the test says."""

    def __init__(self):
        self.engine = None
        self.replica = False
        self.acknowledged = {}  # by session number: (applied, synced)
        self.calls = []
        self.dialect = ""

    def info(self):
        return [("role", "slave" if self.replica else "master"), ("master_replid", HISTORY)]

    def is_replica(self):
        return self.replica

    def follow(self, host, port, caller):
        self.calls.append(("follow", host, port))
        return b"OK"

    def promote(self):
        self.replica = False
        self.calls.append(("promote",))

    def replication_dialect(self, session):
        return self.dialect

    def set_replconf_option(self, session, option, value):
        self.calls.append((option, value))

    def on_acknowledgement(self, session, offset, synced):
        self.acknowledged[session.id] = offset, synced

    def synchronise(self, session, history, offset, *, legacy=False):
        session.is_replica = True
        self.calls.append(("synchronise", history, offset, legacy))

    def written_offset(self):
        return 100 * len(self.engine.effects.items)

    def count_acknowledged_replicas(self, offset):
        return sum(applied >= offset for applied, _ in self.acknowledged.values())

    def count_synced_replicas(self, offset):
        return sum(synced >= offset for _, synced in self.acknowledged.values())

    def request_acknowledgements(self):
        self.calls.append(("request",))

    def fail_over(self, host, port, force, timeout_ms):
        self.calls.append(("fail over", host, port, force, timeout_ms))

    def abort_failover(self):
        raise CommandError("ERR No failover in progress.")


class Server(ServerInterface):
    """A server with a log whose synced length the test sets."""

    synced = 0

    def synced_log_offset(self):
        return self.synced


@pytest.fixture
def served(talk):
    """A conversation with an engine that has replication."""
    talk.server = Server()
    talk.replication = talk.server.replication = PlayedReplication()
    talk.engine = Engine(server=talk.server)
    talk.engine.set_effect_recording(True)
    talk.replication.engine = talk.engine
    return talk


def acknowledge(talk, offset, client, synced=None):
    """The client is a replica and acknowledges the offset."""
    if client not in talk.clients or not talk.clients[client].is_replica:
        assert talk("PSYNC ? -1", client) == "(nothing)"
    words = f"REPLCONF ACK {offset}" + (f" FACK {synced}" if synced is not None else "")
    assert talk(words, client) == "(nothing)"


# WAIT.


def test_wait_ends_when_enough_replicas_have_acknowledged(served):
    served("SET a 1")
    assert served("WAIT 2 0") == "(waits)"
    acknowledge(served, 100, "r1")
    assert served.heard("a") == "(waits)"
    acknowledge(served, 99, "r2")
    assert served.heard("a") == "(waits)"
    acknowledge(served, 100, "r2")
    assert served.heard("a") == 2


def test_wait_replies_at_its_deadline_how_many_have_acknowledged(served):
    served("SET a 1")
    assert served("WAIT 2 50") == "(waits)"
    acknowledge(served, 500, "r1")
    served.tick(1049)
    assert served.heard("a") == "(waits)"
    served.tick(1050)
    assert served.heard("a") == 1


def test_wait_asks_for_acknowledgements_only_if_it_must(served):
    acknowledge(served, 0, "r1")
    served.replication.calls.clear()
    assert served("WAIT 1 0") == 1  # it has written nothing
    assert served.replication.calls == []
    served("SET a 1")
    assert served("WAIT 1 0") == "(waits)"
    assert served.replication.calls == [("request",)]


def test_wait_covers_the_writes_before_it_and_not_those_after(served):
    served("SET a 1")
    assert served("WAIT 1 0") == "(waits)"
    served("SET b 1", client="b")
    acknowledge(served, 100, "r1")
    assert served.heard("a") == 1
    assert served("WAIT 1 0", client="b") == "(waits)"


def test_wait_never_blocks_in_a_transaction(served):
    served("MULTI")
    served("SET a 1")
    served("WAIT 5 0")
    assert served("EXEC") == ["OK", 0]


def test_who_waits_is_retried_when_the_server_says_so(served):
    served("SET a 1")
    assert served("WAIT 1 0") == "(waits)"
    served.replication.acknowledged[99] = 100, 0
    served.engine.on_replicas_acknowledged(served.now)
    assert served.heard("a") == 1


def test_waitaof_waits_for_the_log_and_the_replicas_logs(served):
    served("SET a 1")
    assert served("WAITAOF 1 1 0") == "(waits)"
    acknowledge(served, 100, "r1", synced=99)
    served.server.synced = 1
    served.engine.on_log_synced(served.now)
    assert served.heard("a") == "(waits)"
    acknowledge(served, 100, "r1", synced=100)
    assert served.heard("a") == [1, 1]


def test_waitaof_for_replicas_only_does_not_wait_for_the_log(served):
    served("SET a 1")
    assert served("WAITAOF 0 1 0") == "(waits)"
    assert not served.engine.has_sync_waiters()
    acknowledge(served, 100, "r1", synced=100)
    assert served.heard("a") == [0, 1]
    assert served("WAITAOF 0 2 10") == "(waits)"
    served.tick(1010)
    assert served.heard("a") == [0, 1]


def test_a_replica_accepts_no_waits(served):
    served.replication.replica = True
    assert served("WAITAOF x 0 0").startswith("-ERR value is not an integer")
    assert served("WAITAOF 0 0 0") == (
        "-ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are"
        " just local and are not propagated."
    )
    assert served("WAIT x 0").startswith("-ERR WAIT cannot be used with replica instances.")


# REPLCONF, PSYNC and SYNC.


def test_replconf_stops_at_an_unknown_option_and_keeps_the_ones_before(served):
    assert served("REPLCONF Listening-Port 7001 CAPA eof Foo bar capa psync2") == (
        "-ERR Unrecognized REPLCONF option: Foo"
    )
    assert served.replication.calls == [(b"listening-port", b"7001"), (b"capa", b"eof")]


@pytest.mark.parametrize("options", ["capa psync2", "CAPA psync2", "listening-port 7 Capa eof"])
def test_a_replica_that_says_what_it_can_is_told_the_dialect(served, options):
    served.replication.dialect = "headrace"
    assert served("REPLCONF " + options) == "OK headrace"
    assert served("REPLCONF ip-address capa") == "OK", "a value is no option"


@pytest.mark.parametrize("line", ["ACK x", "ACK 5", "ACK 5 FACK x", "capa eof ACK 7", "GETACK *"])
def test_acknowledgements_of_a_client_that_is_no_replica_are_ignored(served, line):
    assert served("REPLCONF " + line) == "(nothing)"
    assert served.replication.acknowledged == {}


def test_an_acknowledgement_may_report_the_synced_offset(served):
    acknowledge(served, 12, "r")
    acknowledge(served, 13, "s", synced=11)
    assert list(served.replication.acknowledged.values()) == [(12, -1), (13, 11)]


def test_psync_and_sync_leave_the_reply_to_the_server(served):
    assert served(f"PSYNC {HISTORY} 77", client="a") == "(nothing)"
    assert served("SYNC", client="b") == "(nothing)"
    asked = [("synchronise", HISTORY.encode(), 77, False), ("synchronise", b"?", -1, True)]
    assert served.replication.calls == asked
    assert served(f"PSYNC {HISTORY} 78", client="a") == served("SYNC", client="b") == "(nothing)"
    assert served.replication.calls == asked


def test_psync_failover_promotes_a_replica_of_the_same_history(served):
    served.replication.replica = True
    assert served(f"PSYNC {'b' * 40} 5 FAILOVER") == "-ERR PSYNC FAILOVER replid must match my replid."
    assert served(f"PSYNC {HISTORY} 5 failover") == "(nothing)"
    assert served.replication.calls == [("promote",), ("synchronise", HISTORY.encode(), 5, False)]


def test_a_replica_is_listed_as_one(served):
    acknowledge(served, 0, "r")
    served("SUBSCRIBE c", client="p")
    assert "flags=S " in served("CLIENT LIST TYPE replica")
    for kind in ("slave", "pubsub"):
        assert served("CLIENT LIST TYPE " + kind).count("id=") == 1
    assert served("CLIENT LIST TYPE master") == ""
    assert "connected_clients:2\r\n" in served("INFO clients")
    assert served("CLIENT KILL TYPE replica") == 1
    assert served.engine.killed_sessions == [served.clients["r"]]


# The role.


def test_replicaof_calls_the_server(served):
    assert served("REPLICAOF host 65535") == served("slaveof NO one") == "OK"
    assert served.replication.calls == [("follow", "host", 65535), ("promote",)]
    acknowledge(served, 0, "r")
    assert served("REPLICAOF host 1", client="r") == "-ERR Command is not valid when client is a replica."


def test_failover_passes_on_what_was_asked_for(served):
    for line in ("", "to h 7 Force timeout 50", "TIMEOUT 3 TO h 8"):
        assert served("FAILOVER " + line) == "OK"
    assert [call[1:] for call in served.replication.calls] == [
        (None, 0, False, 0),
        ("h", 7, True, 50),
        ("h", 8, False, 3),
    ]


def test_info_and_role_are_the_servers(served):
    assert f"role:master\r\nmaster_replid:{HISTORY}\r\n" in served("INFO replication")
    assert served("ROLE") == ["master", 0, []]
    assert "sync_full:0\r\n" in served("INFO stats")


def test_a_database_in_a_program_has_none(talk):
    for line in ("REPLICAOF h 1", "PSYNC ? -1", "SYNC", "FAILOVER", "REPLCONF capa eof"):
        assert talk(line) == "-ERR this database has no replication: it lives in a program"
    assert talk("REPLCONF") == talk("REPLICAOF NO ONE") == "OK"  # it is a primary


# Beside redis-server.

SAME = """
REPLCONF|REPLCONF a|REPLCONF a b|REPLCONF capa xyz|REPLCONF listening-port x|REPLCONF capa eof Bad 1
REPLCONF rdb-only 2|REPLCONF rdb-only x|REPLCONF rdb-only 1|REPLCONF rdb-filter-only Functions
REPLCONF rdb-filter-only keys|REPLCONF rdb-filter-only "|REPLCONF fack 1|REPLICAOF|REPLICAOF a|REPLICAOF a b c
REPLICAOF h x|REPLICAOF h -1|REPLICAOF h 65536|REPLICAOF h 01|SLAVEOF no 1x|REPLICAOF no one|PSYNC|PSYNC ?
PSYNC ? x|PSYNC x 1 Failover|SYNC x|FAILOVER x|FAILOVER ABORT|FAILOVER TO h|FAILOVER TO h x|FAILOVER TIMEOUT
FAILOVER TIMEOUT x|FAILOVER TIMEOUT 0|FAILOVER TIMEOUT -1|FAILOVER ABORT TIMEOUT 5|FAILOVER ABORT ABORT
FAILOVER TO h 1 TO h 2|FAILOVER TIMEOUT 5 TIMEOUT 6|FAILOVER FORCE FORCE|WAIT x 1|WAIT 1 x|WAIT 1 -1|WAIT -1 0
WAIT 0 0|ROLE|ROLE x|CLIENT LIST TYPE Master|CLIENT LIST TYPE replicas|CLIENT KILL TYPE slave
""".replace("\n", "|").strip("|")


def test_replies_are_those_of_redis(served):
    """Errors to the byte, and what replies without an error."""
    with redis_server() as port:
        theirs = RawRedis(port)
        for line in SAME.split("|"):
            words = line.split() if '"' not in line else [*line.split()[:-1], '"']
            served.say(words, "a")
            assert served.clients["a"].reply.take() == theirs.ask(*words), line
            served.clients["a"].is_replica = False
        long = "x" * 256
        served.say(("REPLCONF", "ip-address", long), "a")
        assert served.clients["a"].reply.take() == theirs.ask("REPLCONF", "ip-address", long)


@pytest.mark.parametrize("address", ["1.2.3.4\r\nrole:forged", "1.2.3.4,port=1", "a b", "\x00"])
def test_an_address_that_could_forge_fields_of_info_is_rejected(served, address: str) -> None:
    served.say(("REPLCONF", "ip-address", address), "a")
    assert served.clients["a"].reply.take().startswith(b"-ERR REPLCONF ip-address is neither")
