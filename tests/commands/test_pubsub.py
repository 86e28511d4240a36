"""Pub/sub: which client gets which message when, and which commands a subscriber may send."""

import random

import pytest

from headrace.commands.table import COMMANDS
from headrace.resp.reply_parser import INCOMPLETE, Push, ReplyParser


@pytest.fixture
def heard(talk):
    """heard("b"): every whole message b got since it was last asked, in RESP2 and RESP3 alike."""

    def take(client):
        parser = ReplyParser()
        parser.feed(talk.clients[client].reply.take())
        found = []
        while (reply := parser.next()) is not INCOMPLETE:
            found.append(
                [word.decode() if isinstance(word, bytes) else word for word in reply]
                if isinstance(reply, list)
                else reply
            )
        return found

    return take


def test_a_message_reaches_every_subscriber_of_its_channel(talk, heard):
    for client in "bcd":
        talk.say(["SUBSCRIBE", "news" if client != "d" else "weather"], client)
        heard(client)
    assert talk("PUBLISH news hello") == 2
    assert heard("b") == heard("c") == [["message", "news", "hello"]]
    assert heard("d") == []


def test_subscribing_confirms_each_channel_with_the_number_of_subscriptions(talk, heard):
    talk.say(["SUBSCRIBE", "x", "y", "x"], "b")
    talk.say(["PSUBSCRIBE", "x*"], "b")
    assert heard("b") == [
        ["subscribe", "x", 1],
        ["subscribe", "y", 2],
        ["subscribe", "x", 2],
        ["psubscribe", "x*", 3],
    ]


def test_unsubscribing_without_names_leaves_all_channels_or_all_patterns(talk, heard):
    talk.say(["SUBSCRIBE", "x", "y"], "b")
    talk.say(["PSUBSCRIBE", "p*"], "b")
    heard("b")
    talk.say(["UNSUBSCRIBE"], "b")
    assert heard("b") == [["unsubscribe", "x", 2], ["unsubscribe", "y", 1]]
    talk.say(["PUNSUBSCRIBE"], "b")
    talk.say(["UNSUBSCRIBE"], "b")
    talk.say(["PUNSUBSCRIBE", "never"], "b")
    assert heard("b") == [["punsubscribe", "p*", 0], ["unsubscribe", None, 0], ["punsubscribe", "never", 0]]
    assert talk("PUBLISH x m") == 0


def test_a_channel_heard_by_name_and_by_two_patterns_is_heard_three_times(talk, heard):
    talk.say(["SUBSCRIBE", "news"], "b")
    talk.say(["PSUBSCRIBE", "n*", "*s", "x*"], "b")
    heard("b")
    assert talk("PUBLISH news m") == 3
    assert heard("b") == [
        ["message", "news", "m"],
        ["pmessage", "n*", "news", "m"],
        ["pmessage", "*s", "news", "m"],
    ]


def test_in_resp3_confirmations_and_messages_are_pushes_and_any_command_goes(talk):
    talk("HELLO 3", client="b")
    assert talk.raw("SUBSCRIBE c", client="b") == b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
    talk("PUBLISH c m")
    assert talk.clients["b"].reply.take() == b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"
    assert talk.raw("PING", client="b") == b"+PONG\r\n"
    assert talk.raw("SET k v", client="b") == b"+OK\r\n"


@pytest.mark.parametrize("request_line", ["GET k", "MULTI", "CONFIG GET x", "HELLO 3", "PUBLISH c m"])
def test_in_resp2_a_listener_may_only_change_what_it_listens_to(talk, heard, request_line):
    talk.say(["SUBSCRIBE", "c"], "b")
    heard("b")
    refused = talk(request_line, client="b")
    assert refused.startswith("-ERR Can't execute '") and "are allowed in this context" in refused
    talk.say(["UNSUBSCRIBE"], "b")
    heard("b")
    assert not str(talk(request_line, client="b")).startswith("-ERR Can't")


def test_in_resp2_a_listeners_ping_is_answered_like_a_message(talk, heard):
    talk.say(["SUBSCRIBE", "c"], "b")
    heard("b")
    assert talk("PING", client="b") == ["pong", ""]
    assert talk("PING hello", client="b") == ["pong", "hello"]


def test_an_unknown_command_and_a_wrong_arity_are_said_before_the_mode_is(talk, heard):
    talk.say(["SUBSCRIBE", "c"], "b")
    heard("b")
    assert "unknown command" in talk("NONSENSE", client="b")
    assert "wrong number of arguments for 'get'" in talk("GET", client="b")


def test_reset_ends_all_subscriptions_without_a_word(talk, heard):
    talk.say(["SUBSCRIBE", "c", "d"], "b")
    heard("b")
    assert talk("RESET", client="b") == "RESET"
    assert talk("PUBLISH c m") == 0
    assert talk("GET k", client="b") is None


def test_a_closed_session_is_no_subscriber_any_more(talk, heard):
    talk.say(["SUBSCRIBE", "c"], "b")
    talk.say(["PSUBSCRIBE", "c*"], "b")
    talk.engine.close(talk.clients["b"])
    assert talk("PUBLISH c m") == 0
    assert talk("PUBSUB CHANNELS") == []
    assert talk("PUBSUB NUMPAT") == 0


def test_quit_works_while_subscribed_and_ends_the_messages(talk, heard):
    talk.say(["SUBSCRIBE", "c"], "b")
    heard("b")
    assert talk("QUIT", client="b") == "OK"
    talk("PUBLISH c m")
    assert heard("b") == []


def test_a_client_with_messages_is_woken_once(talk):
    talk.say(["SUBSCRIBE", "c"], "b")
    talk.say(["PSUBSCRIBE", "*"], "b")
    talk.engine.woken_sessions.clear()
    talk("PUBLISH c m")
    assert talk.order_served() == ["b"]


def test_a_client_gets_its_own_message_after_the_reply(talk, heard):
    talk("HELLO 3", client="b")
    talk.say(["SUBSCRIBE", "c"], "b")
    heard("b")
    talk.say(["PUBLISH", "c", "m"], "b")
    told = heard("b")
    assert told == [1, ["message", "c", "m"]]


def test_in_a_transaction_messages_come_behind_the_whole_reply(talk, heard):
    talk("HELLO 3", client="b")
    talk.say(["SUBSCRIBE", "c"], "b")
    for line in ("MULTI", "PUBLISH c 1", "PUBLISH c 2"):
        talk.say(line.split(), "b")
    heard("b")
    talk.say(["EXEC"], "b")
    assert heard("b") == [[1, 1], ["message", "c", "1"], ["message", "c", "2"]]


def test_muted_clients_hear_messages_and_confirmations_all_the_same(talk, heard):
    talk.say(["CLIENT", "REPLY", "OFF"], "b")
    talk.say(["SET", "k", "v"], "b")
    talk.say(["SUBSCRIBE", "c"], "b")
    assert heard("b") == [["subscribe", "c", 1]]
    talk("PUBLISH c m")
    assert heard("b") == [["message", "c", "m"]]
    talk.say(["PING"], "b")
    assert heard("b") == []


def test_a_blocked_client_gets_messages_before_the_reply_it_waits_for(talk):
    talk("HELLO 3", client="b")
    talk.say(["SUBSCRIBE", "__keyspace@0__:s"], "b")
    talk("CONFIG SET notify-keyspace-events Kt")
    talk.clients["b"].reply.take()
    assert talk("XREAD BLOCK 0 STREAMS s $", client="b") == "(waits)"
    talk("XADD s 1-1 f v")
    parser = ReplyParser()
    parser.feed(talk.clients["b"].reply.take())
    message, entries = parser.next(), parser.next()
    assert isinstance(message, Push) and message[-1] == b"xadd"
    assert entries == {b"s": [[b"1-1", [b"f", b"v"]]]}


def test_pubsub_tells_channels_and_counts(talk):
    talk.say(["SUBSCRIBE", "news", "weather"], "b")
    talk.say(["SUBSCRIBE", "news"], "c")
    talk.say(["PSUBSCRIBE", "n*"], "c")
    assert talk("PUBSUB CHANNELS") == ["news", "weather"]
    assert talk("PUBSUB CHANNELS w*") == ["weather"]
    assert talk("PUBSUB NUMSUB news other") == ["news", 2, "other", 0]
    assert talk("PUBSUB NUMPAT") == 1
    assert talk("PUBSUB SHARDCHANNELS") == []
    assert talk("PUBSUB SHARDNUMSUB x") == ["x", 0]
    assert talk("PUBSUB CHANNELS a b").startswith("-ERR unknown subcommand or wrong number of arguments")


def test_client_list_and_info_count_subscriptions(talk):
    talk.say(["SUBSCRIBE", "x", "y"], "b")
    talk.say(["PSUBSCRIBE", "p*"], "b")
    listed = talk("CLIENT LIST TYPE pubsub")
    assert listed.count("\n") == 1
    assert " flags=P " in listed and " sub=2 psub=1 " in listed
    assert talk("CLIENT LIST TYPE normal").count("id=") == 1
    stats = talk("INFO stats")
    assert "pubsub_channels:2\r\n" in stats and "pubsub_patterns:1\r\n" in stats
    assert "pubsub_clients:1\r\n" in talk("INFO clients")
    assert talk("CLIENT KILL TYPE pubsub") == 1


def test_any_requests_leave_counts_and_subscribers_in_step(talk):
    chance = random.Random(1)
    verbs = [c.name.decode() for c in COMMANDS if "pubsub" in c.flags] + ["RESET", "HELLO", "PING"]
    for _ in range(4000):
        name = chance.choice("abcd")
        words = [chance.choice(verbs), *chance.choices(["x", "y", "x*", "*", "3"], k=chance.randint(0, 2))]
        talk.say(words, name)
        assert b"internal error" not in talk.clients[name].reply.take()
        if chance.random() < 0.05:
            talk.engine.close(talk.clients.pop(name))
    channels = talk.engine.pubsub
    tables = (
        (channels.channel_subscribers, "channels"),
        (channels.pattern_subscribers, "patterns"),
        (channels.shard_channel_subscribers, "shard_channels"),
    )
    for table, own in tables:
        listed = {(name, s.id) for name, sessions in table.items() for s in sessions}
        assert listed == {(n, s.id) for s in talk.clients.values() for n in getattr(s, own)}
        assert all(table.values())
    for session in talk.clients.values():
        own_sizes = [len(session.channels), len(session.patterns), len(session.shard_channels)]
        assert session.subscription_count == sum(own_sizes)
        talk.engine.close(session)
    assert (
        not channels.channel_subscribers
        and not channels.pattern_subscribers
        and not channels.shard_channel_subscribers
    )
    assert talk.engine.keyspace.notifier.publish is None


def test_subscriptions_are_counted_in_the_memory_of_their_client(talk):
    talk.say(["PSUBSCRIBE", *(f"pattern-{n}*" for n in range(1000))], "b")
    talk.say(["SUBSCRIBE", *(f"channel-{n}" for n in range(1000))], "b")
    held = talk.clients["b"].subscription_bytes
    assert 2000 * 300 < held < 2000 * 500
    line = next(one for one in talk("CLIENT LIST").splitlines() if "psub=1000" in one)
    assert int(line.partition("tot-mem=")[2].split()[0]) >= held
    talk.say(["SUBSCRIBE", "channel-1"], "b")
    assert talk.clients["b"].subscription_bytes == held
    talk.say(["PUNSUBSCRIBE"], "b")
    talk.say(["UNSUBSCRIBE"], "b")
    assert talk.clients["b"].subscription_bytes == 0


def test_a_channel_too_long_for_all_patterns_is_rejected(talk):
    talk.say(["PSUBSCRIBE", *(f"*{n}?*" for n in range(2000))], "b")
    assert talk.words("PUBLISH", "x" * 10_000, "m").startswith("-ERR the channel's name is too long")
    assert talk.words("PUBLISH", "x" * 8_000, "m") == 0
    talk.say(["PUNSUBSCRIBE"], "b")
    assert talk.words("PUBLISH", "x" * 1_000_000, "m") == 0
