"""CLIENT TRACKING: what tests/conformance/test_tracking_compared.py cannot compare with a redis-server."""

import pytest

from headrace.resp.reply_parser import INCOMPLETE, Push, ReplyParser


@pytest.fixture
def pushed(talk):
    """pushed("b"): the invalidated keys of every push that b has received since the last call."""

    def take(client="b"):
        talk.engine.take_woken()
        parser = ReplyParser()
        parser.feed(talk.clients[client].reply.take())
        found = []
        while (reply := parser.next()) is not INCOMPLETE:
            if isinstance(reply, Push):
                found.append(reply[1] and [key.decode() for key in reply[1]])
        return found

    return take


def tracks(talk, client="b", options=""):
    talk("HELLO 3", client=client)
    assert talk(f"CLIENT TRACKING ON {options}", client=client) == "OK"


def fields(talk, section):
    return dict(line.split(":") for line in talk(f"INFO {section}").splitlines() if ":" in line)


def figures(talk):
    stats = fields(talk, "stats")
    return [int(stats[f"tracking_total_{name}"]) for name in ("keys", "items", "prefixes")]


def test_the_oldest_keys_are_invalidated_when_the_table_is_full(talk, pushed):
    talk.engine.keyspace.settings.tracking_table_max_keys = 3
    tracks(talk)
    for key in "xyzxv":
        talk.say(["GET", key], "b")
    assert pushed() == [["x"]]
    talk.say(["MGET", *"abcdefgh"], "b")
    assert pushed() == [[key] for key in "yzvabcde"]
    assert figures(talk) == [3, 3, 0]


def test_a_lower_limit_applies_from_the_next_read_on(talk, pushed):
    tracks(talk)
    talk.say(["MGET", *"abcdefgh"], "b")
    talk.engine.keyspace.settings.tracking_table_max_keys = 2
    talk.say(["GET", "x"], "b")
    assert pushed() == [[key] for key in "abcdefg"]


def test_a_limit_of_zero_is_none(talk, pushed):
    talk.engine.keyspace.settings.tracking_table_max_keys = 0
    tracks(talk)
    talk.say(["MGET", *(f"k{number}" for number in range(5000))], "b")
    assert pushed() == []
    assert figures(talk) == [5000, 5000, 0]


def test_the_bytes_of_all_keys_are_bounded(talk, pushed):
    talk.engine.tracking.key_bytes_max = 1000
    tracks(talk)
    for letter in "abc":
        talk.say(["GET", letter * 400], "b")
    assert pushed() == [["a" * 400]]
    assert talk.engine.tracking.key_bytes == 800
    talk.say(["GET", "d" * 2000], "b")
    assert pushed() == [["b" * 400], ["c" * 400], ["d" * 2000]]
    assert talk.engine.tracking.key_bytes == 0


def test_clients_that_left_do_not_accumulate_at_a_key_that_never_changes(talk):
    tracks(talk, "keeper")
    for number in range(200):
        tracks(talk, f"c{number}")
        talk("GET k", client=f"c{number}")
        talk.engine.close(talk.clients.pop(f"c{number}"))
    keys, items, _ = figures(talk)
    assert keys == 1 and items <= 10


def test_nothing_is_observed_or_remembered_after_the_last_tracking_client_left(talk):
    watched = talk.engine.keyspace.database(0).watched_keys
    assert not watched.has_observers
    tracks(talk)
    tracks(talk, "c", "BCAST PREFIX p")
    talk.say(["MGET", "a", "b"], "b")
    assert watched.has_observers
    assert figures(talk) == [2, 2, 1]
    assert fields(talk, "clients")["tracking_clients"] == "2"
    for client in "bc":
        talk.engine.close(talk.clients.pop(client))
    assert not watched.has_observers
    assert figures(talk) == [0, 0, 0]
    assert fields(talk, "clients")["tracking_clients"] == "0"


def test_a_watch_keeps_a_database_observed_and_its_end_does_not_end_tracking(talk, pushed):
    watched = talk.engine.keyspace.database(0).watched_keys
    talk("WATCH k")
    assert watched.has_observers
    talk("UNWATCH")
    assert not watched.has_observers
    tracks(talk)
    talk("WATCH k")
    talk("UNWATCH")
    talk("GET k", client="b")
    talk("SET k 1")
    assert pushed() == [["k"]]


def test_an_expired_key_is_reported_at_the_timer_and_at_an_access(talk, pushed):
    tracks(talk)
    talk("SET k v PX 100")
    talk("GET k", client="b")
    pushed()
    talk.tick(1200)
    assert pushed() == [["k"]]
    talk("SET k v PX 100")
    talk("GET k", client="b")
    talk.now = 1400
    talk("GET k")
    assert pushed() == [["k"]]


@pytest.mark.parametrize("options", ["NOLOOP", "NOLOOP BCAST"])
def test_noloop_does_not_hide_that_a_key_expired_at_an_access_of_the_client(talk, pushed, options):
    tracks(talk, options=options)
    talk("SET k v PX 100")
    talk("GET k", client="b")
    pushed()
    talk.now = 1400
    talk.say(["EXISTS", "k"], "b")
    assert pushed() == [["k"]]


def test_noloop_does_not_hide_that_memory_was_freed_for_a_request_of_the_client(talk, pushed):
    talk.node_entries(2)
    for number in range(1, 20):
        talk(f"XADD s {number}-1 f {'v' * 100}")
    tracks(talk, options="NOLOOP")
    talk("XLEN s", client="b")
    talk.engine.write_gate.eviction.policy = "stream-oldest"
    memory = talk.engine.keyspace.memory
    memory.limit = memory.total - 1
    talk.say(["SET", "k", "v"], "b")
    assert pushed() == [["s"]]


def test_broadcast_with_noloop_reports_a_key_that_another_client_changed_last(talk, pushed):
    tracks(talk, options="BCAST NOLOOP")
    talk.say(["SET", "a", "1"], "b")
    talk.say(["SET", "b", "1"], "b")
    talk("SET c 1")
    talk("SET b 2")
    talk.say(["SET", "c", "2"], "b")
    assert pushed() == [["b"]]


def test_broadcast_sends_all_keys_of_a_turn_once_and_in_order(talk, pushed):
    tracks(talk, options="BCAST")
    for key in "cabca":
        talk(f"SET {key} 1")
    assert pushed() == [["a", "b", "c"]]
    assert pushed() == []


def test_a_client_has_a_bounded_number_of_prefixes(talk):
    tracks(talk)
    talk("CLIENT TRACKING OFF", client="b")
    many = [word for number in range(1000, 2000) for word in ("PREFIX", f"p{number}")]
    assert talk.words("CLIENT", "TRACKING", "ON", "BCAST", *many, client="b") == "OK"
    one_more = talk("CLIENT TRACKING ON BCAST PREFIX q", client="b")
    assert one_more == "-ERR a client can have at most 1000 prefixes"
    assert figures(talk) == [0, 0, 1000]
    assert talk("RESET", client="b") == "RESET"
    assert figures(talk) == [0, 0, 0]


def test_client_list_shows_the_modes_and_the_redirection(talk):
    tracks(talk)
    number = talk("CLIENT ID")
    talk(f"CLIENT TRACKING ON REDIRECT {number}", client="b")
    assert " flags=t db=0 sub=0 psub=0 ssub=0 " in talk("CLIENT INFO", client="b")
    assert f" redir={number} resp=3 " in talk("CLIENT INFO", client="b")
    talk("GET k", client="b")
    talk.engine.close(talk.clients.pop("a"))
    talk("SET k v")
    talk.clients["b"].reply.take()
    assert " flags=tR " in talk("CLIENT INFO", client="b")
    talk("CLIENT TRACKING OFF", client="b")
    talk("CLIENT TRACKING ON BCAST", client="b")
    assert " flags=tB " in talk("CLIENT INFO", client="b")
    talk("WATCH w", client="b")
    talk("CLIENT NO-EVICT ON", client="b")
    talk("PING")
    talk("SET w v")
    assert " flags=tBde " in talk("CLIENT INFO", client="b").rpartition(">")[2]
    talk("UNWATCH", client="b")
    talk("CLIENT NO-EVICT OFF", client="b")
    talk("CLIENT TRACKING OFF", client="b")
    assert " flags=N " in talk("CLIENT INFO", client="b")
    assert " redir=-1 " in talk("CLIENT INFO", client="b")


def test_a_closing_client_and_a_closing_target_receive_nothing(talk):
    tracks(talk)
    talk("PING", client="c")
    talk(f"CLIENT TRACKING ON REDIRECT {talk.clients['c'].id}", client="b")
    talk("GET k", client="b")
    talk("QUIT", client="c")
    talk("SET k v")
    assert talk.clients["c"].reply.take() == b"" and talk.clients["b"].reply.take() == b""


def test_a_served_reader_tracks_the_stream_again(talk, pushed):
    tracks(talk)
    assert talk("XREAD BLOCK 0 STREAMS s $", client="b") == "(waits)"
    talk("XADD s 1-1 f v")
    assert pushed() == [["s"]]
    talk("XADD s 2-1 f v")
    assert pushed() == [["s"]]
    talk("XADD s 3-1 f v")
    assert pushed() == []


def test_caching_applies_to_a_request_that_waits(talk, pushed):
    tracks(talk, options="OPTIN")
    talk("CLIENT CACHING YES", client="b")
    assert talk("XREAD BLOCK 0 STREAMS s $", client="b") == "(waits)"
    talk("XADD s 1-1 f v")
    talk("XADD s 2-1 f v")
    assert pushed() == [["s"], ["s"]]
    talk("GET k", client="b")
    talk("SET k v")
    assert pushed() == []


def test_requests_that_did_not_run_track_nothing(talk):
    tracks(talk)
    talk("ACL SETUSER ann on nopass +@all -get ~*")
    talk("AUTH ann x", client="b")
    assert talk("GET k", client="b").startswith("-NOPERM")
    assert talk("XRANGE k", client="b").startswith("-ERR wrong number")
    talk("MULTI", client="b")
    talk("XLEN k", client="b")
    assert figures(talk) == [0, 0, 0]
    talk.say(["EXEC"], "b")
    assert figures(talk) == [1, 1, 0]
