"""Messages that a script publishes: in order, complete, and bounded while it runs."""

import tracemalloc

import pytest

from headrace.resp.reply_parser import INCOMPLETE, Push, ReplyParser

pytest.importorskip("lupa.luajit21")

PUBLISH_MANY = "for i = 1, ARGV[1] do redis.call('PUBLISH', 'c', i) end return 'end'"
COUNT = 5000


def received(talk, client):
    """All replies and messages that the client has received."""
    parser = ReplyParser()
    parser.feed(talk.clients[client].reply.take())
    found = []
    while (reply := parser.next()) is not INCOMPLETE:
        found.append(reply)
    return found


def check_bound(talk, client, script):
    """Run a script with 40 MB of messages for a client that may leave one unread; the client is dropped."""
    talk.engine.pubsub.unread_bytes_max = 1_000_000
    talk("HELLO 3", client=client)
    talk.raw("PSUBSCRIBE c*", client=client)
    tracemalloc.start()
    try:
        talk.say(["EVAL", script, "0"], "a")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert talk.clients[client].reply.overflowed, "so the event loop disconnects it"
    assert peak < 16_000_000


def test_other_clients_get_all_messages_in_order(talk):
    talk.raw("SUBSCRIBE c", client="b")
    talk.raw("PSUBSCRIBE c*", client="p")
    assert talk.words("EVAL", PUBLISH_MANY, "0", str(COUNT)) == "end"
    numbers = [b"%d" % i for i in range(1, COUNT + 1)]
    assert received(talk, "b") == [[b"message", b"c", number] for number in numbers]
    assert received(talk, "p") == [[b"pmessage", b"c*", b"c", number] for number in numbers]


def test_shard_channels_too(talk):
    talk.raw("SSUBSCRIBE c", client="b")
    assert talk.words("EVAL", PUBLISH_MANY.replace("PUBLISH", "SPUBLISH"), "0", str(COUNT)) == "end"
    assert received(talk, "b") == [[b"smessage", b"c", b"%d" % i] for i in range(1, COUNT + 1)]


def test_the_script_s_own_client_gets_its_reply_first(talk):
    talk("HELLO 3")
    talk.raw("SUBSCRIBE c")
    talk.say(["EVAL", PUBLISH_MANY, "0", str(COUNT)], "a")
    reply, *messages = received(talk, "a")
    assert reply == b"end"
    assert messages == [Push([b"message", b"c", b"%d" % i]) for i in range(1, COUNT + 1)]


def test_in_a_transaction_its_own_messages_follow_the_reply_of_exec(talk):
    talk("HELLO 3")
    talk.raw("SUBSCRIBE c")
    talk("MULTI")
    talk.words("EVAL", PUBLISH_MANY, "0", str(COUNT))
    talk.words("EVAL", PUBLISH_MANY, "0", str(COUNT))
    talk.say(["EXEC"], "a")
    reply, *messages = received(talk, "a")
    assert reply == [b"end", b"end"]
    assert messages == 2 * [Push([b"message", b"c", b"%d" % i]) for i in range(1, COUNT + 1)]


def test_a_key_is_invalidated_before_the_messages_that_follow_its_change(talk):
    talk("HELLO 3", client="b")
    talk("CLIENT TRACKING ON", client="b")
    talk("GET k", client="b")
    talk.raw("SUBSCRIBE c", client="b")
    assert talk.words("EVAL", f"redis.call('SET', 'k', 1) {PUBLISH_MANY}", "0", str(COUNT)) == "end"
    first, *messages = received(talk, "b")
    assert first == Push([b"invalidate", [b"k"]])
    assert len(messages) == COUNT


@pytest.mark.parametrize("client", ["a", "b"], ids=["its own", "another"])
def test_a_script_may_not_fill_the_memory_with_messages(talk, client):
    """Forty megabytes for a client that may leave one unread."""
    script = "local text = string.rep('x', 1000) for i = 1, 40000 do redis.call('PUBLISH', 'c', text) end"
    check_bound(talk, client, script)
    assert talk("PING", client="c") == "PONG"


def test_the_messages_of_many_small_scripts_are_not_dropped(talk):
    talk.engine.pubsub.unread_bytes_max = 1_000_000
    talk.raw("SUBSCRIBE c", client="b")
    for _ in range(100):
        assert talk.words("EVAL", PUBLISH_MANY, "0", "100") == "end"
        assert len(received(talk, "b")) == 100
    assert not talk.clients["b"].reply.overflowed


@pytest.mark.parametrize("client", ["a", "b"], ids=["its own", "another"])
def test_names_of_channels_count(talk, client):
    check_bound(
        talk, client, "for i = 1, 200 do redis.call('PUBLISH', string.rep('c', 200000) .. i, 'x') end"
    )


def test_empty_messages_count(talk):
    talk.engine.pubsub.unread_bytes_max = 1_000_000
    talk("HELLO 3")
    talk.raw("SUBSCRIBE c")
    talk.say(["EVAL", "for i = 1, 30000 do redis.call('PUBLISH', 'c', '') end", "0"], "a")
    assert talk.clients["a"].reply.overflowed


def test_an_invalidation_redirected_to_the_script_s_client_follows_its_reply(talk):
    talk("HELLO 3")
    talk(f"CLIENT TRACKING ON REDIRECT {talk.clients['a'].id}", client="b")
    talk("GET k", client="b")
    talk.raw("SUBSCRIBE c", client="d")
    talk("MULTI")
    talk.words("SET", "other", "1")
    talk.words("EVAL", f"redis.call('SET', 'k', 1) {PUBLISH_MANY}", "0", str(COUNT))
    talk.say(["EXEC"], "a")
    assert received(talk, "a") == [["OK", b"end"], Push([b"invalidate", [b"k"]])]
    assert len(received(talk, "d")) == COUNT
