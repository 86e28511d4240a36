"""Messages through sockets, as redis-py's pubsub sends and gets them."""

import threading

import pytest
import redis

SECONDS = 20


@pytest.fixture(params=[2, 3])
def connect(server, request):
    made = []

    def client():
        made.append(redis.Redis(port=server.port, protocol=request.param, decode_responses=True))
        return made[-1]

    yield client
    for one in made:
        one.close()


def messages(pubsub, count):
    """The next messages, confirmations aside."""
    found = []
    while len(found) < count:
        message = pubsub.get_message(timeout=SECONDS)
        assert message is not None, f"only {found} came"
        if message["type"] in ("message", "pmessage"):
            found.append((message["channel"], message["data"]))
    return found


def subscribed(client, *names, patterns=()):
    pubsub = client.pubsub()
    if names:
        pubsub.subscribe(*names)
    if patterns:
        pubsub.psubscribe(*patterns)
    for _ in range(len(names) + len(patterns)):
        assert pubsub.get_message(timeout=SECONDS)["type"] in ("subscribe", "psubscribe")
    return pubsub


def test_messages_arrive_in_order_and_whole(connect):
    listener = subscribed(connect(), "news")
    sender = connect()
    sent = [f"{number}" * (1 + number * 37 % 500) for number in range(300)]
    for text in sent:
        assert sender.publish("news", text) == 1
    assert [data for _, data in messages(listener, len(sent))] == sent


def test_a_pipeline_of_messages_reaches_many_listeners(connect):
    listeners = [subscribed(connect(), "c", patterns=["c*"]) for _ in range(5)]
    pipeline = connect().pipeline(transaction=False)
    for number in range(50):
        pipeline.publish("c", number)
    assert pipeline.execute() == [10] * 50
    for listener in listeners:
        got = messages(listener, 100)
        assert sorted(got) == sorted([("c", str(number)) for number in range(50)] * 2)


def test_events_of_keys_reach_a_pattern(connect):
    writer = connect()
    writer.config_set("notify-keyspace-events", "KEA")
    assert writer.config_get("notify-keyspace-events") == {"notify-keyspace-events": "AKE"}
    listener = subscribed(connect(), patterns=["__key*__:*"])
    writer.set("k", "v", px=1)
    assert messages(listener, 6) == [
        ("__keyspace@0__:k", "set"),
        ("__keyevent@0__:set", "k"),
        ("__keyspace@0__:k", "expire"),
        ("__keyevent@0__:expire", "k"),
        ("__keyspace@0__:k", "expired"),
        ("__keyevent@0__:expired", "k"),
    ]


def test_an_expiry_is_told_though_nobody_asks_for_anything(connect):
    writer = connect()
    writer.config_set("notify-keyspace-events", "Ex")
    listener = subscribed(connect(), "__keyevent@0__:expired")
    writer.set("k", "v", px=150)
    assert messages(listener, 1) == [("__keyevent@0__:expired", "k")]


def test_a_listener_in_a_thread_gets_what_others_send_until_it_leaves(connect):
    got = []
    client, enough = connect(), threading.Event()
    pubsub = client.pubsub()

    def hear(message):
        got.append(message["data"])
        if len(got) == 3:
            enough.set()

    pubsub.subscribe(c=hear)
    runner = pubsub.run_in_thread(sleep_time=0.01)
    sender = connect()
    while not sender.publish("c", "0"):
        pass
    sender.publish("c", "1")
    sender.publish("c", "2")
    assert enough.wait(SECONDS)
    runner.stop()
    runner.join(SECONDS)
    assert got == ["0", "1", "2"]


def test_a_listener_that_hangs_up_is_forgotten(connect):
    client = connect()
    listener = subscribed(connect(), "c")
    assert client.pubsub_numsub("c") == [("c", 1)]
    listener.close()
    while client.pubsub_numsub("c") != [("c", 0)]:
        pass
    assert client.publish("c", "m") == 0


def test_a_listener_that_does_not_read_is_closed_and_the_others_go_on(start):
    server = start("--client-output-buffer-limit", "pubsub 1mb 0 0")
    slow, sender = server.connect(), server.connect()
    assert slow.request("SUBSCRIBE", "c") == [b"subscribe", b"c", 1]
    message = b"x" * 500_000
    for _ in range(200):
        if sender.request("PUBLISH", "c", message) == 0:
            break
    else:
        raise AssertionError("100 MB lie unread")
    assert sender.request("PUBSUB", "CHANNELS") == []
