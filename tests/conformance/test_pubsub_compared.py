"""Channels and keyspace notifications beside a real redis-server: the same messages, in the same order."""

import random
import re

import pytest

from conformance.peer import PATIENCE_S, QUIET_S, Both, differ, now_ms, reply_end, words

PROTOCOLS = pytest.mark.parametrize("protocol", [2, 3])
ROUNDS = 500


class Listening(Both):
    """A dialogue in which a request may have several replies, and other clients get messages."""

    def request(self, line, unordered=False):
        """The request of a line such as `B> SET k v`; what every client receives then must agree."""
        told = line.partition("#")[0].strip()
        name, arrow, request = told.partition("> ")
        if not arrow or not name.isidentifier():
            name, request = "A", told
        argv = words(request)
        session, connection = self.client(name)
        connection.send(argv)
        self.engine.execute(session, argv, now_ms())
        self.engine.tick(now_ms())
        self.heard(argv, name, unordered)

    def heard(self, argv, asked, unordered):
        for name in sorted(self.clients, key=lambda name: name != asked):
            session, connection = self.clients[name]
            if name != asked and session.subscription_count and session.queue is None and not session.closing:
                connection.send([b"PING"])  # behind its answer there is nothing more to come
                self.engine.execute(session, [b"PING"], now_ms())
            ours = split(session.reply.take())
            theirs = [connection.reply(PATIENCE_S) for _ in ours]
            if unordered:
                ours.sort()
                theirs.sort()
            differ(name, argv, b"".join(ours), b"".join(theirs))

    def end(self):
        """Nobody has heard more from the one than from the other."""
        for name, (session, connection) in self.clients.items():
            differ(name, [b"(more)"], session.reply.take(), connection.reply(QUIET_S))


def split(data):
    found = []
    while data:
        end = reply_end(data)
        found.append(data[:end])
        data = data[end:]
    return found


@pytest.fixture
def listening(peer):
    made = []

    def begin(protocol):
        peer.clean()
        made.append(Listening(peer, protocol))
        return made[-1]

    yield begin
    for one in made:
        one.close()
    peer.clean()


CHANNELS = """
    B> UNSUBSCRIBE
    B> PUNSUBSCRIBE
    B> UNSUBSCRIBE x y
    B> SUBSCRIBE
    B> SUBSCRIBE c1 c2 c1
    B> PSUBSCRIBE c*
    PUBLISH c1 hello
    PUBLISH other hello
    PUBLISH c1 "\\x00\\r\\n"
    B> PING
    B> PING x
    B> PING x y
    B> NONSENSE
    B> GET
    B> CONFIG
    B> CONFIG NONSENSE
    PUBSUB CHANNELS c1
    PUBSUB CHANNELS x*
    PUBSUB NUMSUB c1 zz c1
    PUBSUB NUMSUB
    PUBSUB NUMPAT
    PUBSUB NUMPAT x
    PUBSUB SHARDCHANNELS
    PUBSUB SHARDNUMSUB x
    PUBSUB CHANNELS a b
    PUBSUB NONSENSE
    PUBSUB
    PUBLISH c1
    C> SUBSCRIBE c1
    C> PSUBSCRIBE c[0-9]
    PUBLISH c1 again
    C> UNSUBSCRIBE c1
    C> PUNSUBSCRIBE
    PUBLISH c1 once
    B> UNSUBSCRIBE c1
    B> PUNSUBSCRIBE c1
    B> PUNSUBSCRIBE
    B> UNSUBSCRIBE
    B> GET k
    B> MULTI
    B> PUNSUBSCRIBE
    B> PSUBSCRIBE d*
    B> EXEC
    PUBLISH dd m
    B> RESET
    B> GET k
    PUBLISH dd m
    D> CLIENT REPLY OFF
    D> SET k v
    D> SUBSCRIBE q
    PUBLISH q 1
    D> UNSUBSCRIBE
    D> CLIENT REPLY ON
    D> CLIENT REPLY SKIP
    D> SUBSCRIBE q
    D> QUIT
    E> SUBSCRIBE "" "\\xff"
    PUBLISH "" m
    PUBLISH "\\xff" m
"""


@PROTOCOLS
def test_channels(listening, protocol):
    both = listening(protocol)
    for line in CHANNELS.splitlines():
        if line.strip():
            both.request(line)
    both.end()


SHARDS = """
    B> SSUBSCRIBE
    B> SUNSUBSCRIBE
    B> SUNSUBSCRIBE x y
    B> SSUBSCRIBE c1 c1
    B> SUBSCRIBE p
    B> SSUBSCRIBE c2
    B> PSUBSCRIBE c*
    SPUBLISH c1 hello
    PUBLISH c1 hello
    SPUBLISH other hello
    SPUBLISH c1
    SPUBLISH c1 a b
    B> PING
    B> GET k
    PUBSUB SHARDCHANNELS c1
    PUBSUB SHARDCHANNELS x*
    PUBSUB SHARDCHANNELS a b
    PUBSUB CHANNELS
    PUBSUB SHARDNUMSUB c1 zz c1
    PUBSUB SHARDNUMSUB
    PUBSUB NUMSUB c1
    C> SSUBSCRIBE c1
    SPUBLISH c1 again
    PUBSUB SHARDNUMSUB c1
    C> SUNSUBSCRIBE
    B> UNSUBSCRIBE
    B> PUNSUBSCRIBE
    B> SUNSUBSCRIBE c1 zz
    B> SUNSUBSCRIBE
    B> GET k
    B> SSUBSCRIBE c1
    B> RESET
    PUBSUB SHARDCHANNELS
    B> MULTI
    B> SSUBSCRIBE c1
    B> SUNSUBSCRIBE
    B> SPUBLISH c1 m
    B> EXEC
    D> CLIENT REPLY OFF
    D> SSUBSCRIBE q
    SPUBLISH q 1
    D> SUNSUBSCRIBE
    D> CLIENT REPLY ON
    E> SSUBSCRIBE "" "\\xff"
    SPUBLISH "" m
    SPUBLISH "\\xff" m
"""


@PROTOCOLS
def test_shard_channels(listening, protocol):
    both = listening(protocol)
    for line in SHARDS.splitlines():
        if line.strip():
            both.request(line)
    both.end()


REFUSED_TO_LISTENERS = (
    "GET k|SET k v|MULTI|EXEC|DISCARD|WATCH k|CONFIG GET x|HELLO 3|HELLO 2|PUBLISH c m|CLIENT ID"
)


@pytest.mark.parametrize("line", REFUSED_TO_LISTENERS.split("|"))
def test_a_listener_in_resp2_is_refused_alike(listening, line):
    both = listening(2)
    both.request("B> SUBSCRIBE c")
    both.request(f"B> {line}")
    both.request("B> PING")
    both.end()


EVENTS = """
    SET a 1
    SET a 2
    SET a 2 GET
    SET nk 2 GET
    SET a 2 NX
    SET nnk 2 XX
    SET a 3 EX 100
    SET a 3 KEEPTTL
    SETNX a 1
    SETNX b2 1
    SETEX b 100 1
    PSETEX b 100000 1
    GETSET b 3
    GETSET bb 3
    GETDEL b
    GETDEL b
    SET b 1
    GETEX b
    GETEX b EX 100
    GETEX b PERSIST
    GETEX b PERSIST
    GETEX b PXAT 1
    GETEX b
    MSET a 1 b 2 a 3
    MSETNX c 1 d 2
    MSETNX c 1 e 2
    APPEND c x
    APPEND new1 x
    SETRANGE c 3 yy
    SETRANGE c 0 ""
    SETRANGE new2 3 yy
    SETRANGE new3 3 ""
    INCR n
    INCR a
    DECRBY n 3
    INCRBYFLOAT n 1.5
    INCRBYFLOAT nf 1.5
    INCR n
    DEL a
    DEL a b zz b
    UNLINK c
    EXISTS qq
    EXISTS qq d qq
    TOUCH qq
    TYPE qq
    TTL qq
    PTTL qq
    EXPIRETIME qq
    OBJECT ENCODING qq
    OBJECT REFCOUNT qq
    STRLEN qq
    GETRANGE qq 0 1
    MGET qq d qq2
    GET qq
    XLEN qq
    XRANGE qq - +
    XINFO STREAM qq
    EXPIRE d 100
    EXPIRE d 200 GT
    EXPIRE d 200 NX
    EXPIRE qq 100
    PERSIST d
    PERSIST d
    PERSIST qq
    EXPIRE d -1
    SET d 1
    PEXPIRE d 100000
    EXPIREAT d 1
    SET d 1
    RENAME d e
    SET d 2
    RENAME d e
    RENAME e e
    RENAME qq e
    RENAMENX e n
    RENAMENX e e2
    COPY e2 e3
    COPY e2 n
    COPY e2 n REPLACE
    COPY e2 e3 DB 1
    COPY qq e3
    MOVE e2 2
    SET e2 1
    MOVE e2 2
    SELECT 2
    DEL e2
    SELECT 0
    SET swap 1
    SWAPDB 0 3
    SWAPDB 0 3
    MULTI
    SET m 1
    DEL m
    EXEC
    FLUSHDB
    FLUSHALL
"""

STREAM_EVENTS = """
    XADD s NOMKSTREAM * f v
    XADD s 1-1 f v
    XADD s 1-1 f v
    XADD s MAXLEN 1 2-1 f v
    XADD s MAXLEN 5 3-1 f v
    XADD s MAXLEN 0 4-1 f v
    XADD s 5-1 f v
    XTRIM s MAXLEN 1
    XTRIM s MAXLEN 0
    XADD s 6-1 f v
    XDEL s 1-1
    XDEL s 6-1 6-1
    XSETID s 7-1
    SET k v
    XADD k * f v
    XTRIM k MAXLEN 1
    DEL s
    XADD s 1-1 f v
    COPY s s2
    RENAME s s2
    XADD s2 MINID 5 4-1 f v
"""

GROUP_EVENTS = """
    XADD s 1-1 f v
    XGROUP CREATE s g $
    XGROUP CREATE s g $
    XGROUP CREATE s2 g $
    XGROUP CREATE s2 g $ MKSTREAM
    XGROUP SETID s g 0
    XGROUP SETID s none 0
    XGROUP CREATECONSUMER s g c
    XGROUP CREATECONSUMER s g c
    XADD s 8-1 f v
    XREADGROUP GROUP g c2 STREAMS s >
    XREADGROUP GROUP g c2 STREAMS s 0
    XADD s 9-1 f v
    XADD s2 9-1 f v
    XGROUP CREATECONSUMER s2 g c5
    XREADGROUP GROUP g c5 NOACK STREAMS s s2 > >
    XCLAIM s g c6 0 8-1
    XCLAIM s g c6 0 9-1 FORCE
    XAUTOCLAIM s g c7 0 0 COUNT 1
    XACK s g 8-1
    XACK s g 8-1
    XACK nokey g 1-1
    XPENDING s g
    XPENDING nokey g
    XINFO GROUPS nokey
    XREADGROUP GROUP g c STREAMS nokey >
    XGROUP DELCONSUMER s g c5
    XGROUP DELCONSUMER s g none
    XGROUP DESTROY s none
    XGROUP DESTROY s g
    DEL s s2
"""


def told_of(both, classes):
    both.request(f"CONFIG SET notify-keyspace-events {classes}")
    both.request("L> PSUBSCRIBE __key*__:*")


@PROTOCOLS
@pytest.mark.parametrize("classes", ["KEAnm", "KA", "En", "K$x", "Eg", "KE"])
def test_events_of_keys_and_strings(listening, protocol, classes):
    both = listening(protocol)
    told_of(both, classes)
    for line in EVENTS.splitlines():
        if line.strip():
            both.request(line)
    both.end()


@PROTOCOLS
@pytest.mark.parametrize("classes", ["KEAn", "Et"])
def test_events_of_streams(listening, protocol, classes):
    both = listening(protocol)
    told_of(both, classes)
    for line in STREAM_EVENTS.splitlines():
        if line.strip():
            both.request(line)
    both.end()


@PROTOCOLS
def test_events_of_consumer_groups(listening, protocol):
    both = listening(protocol)
    told_of(both, "KEAnm")
    for line in GROUP_EVENTS.splitlines():
        if line.strip():
            both.request(line)
    both.end()


def test_letters_are_shown_and_refused_alike(listening):
    both = listening(2)
    for letters in [
        "KEA",
        "A",
        "KEg$lshzxetdnm",
        "Kn",
        "mnEK",
        "Amn",
        "tnE",
        '""',
        "mKx",
        "Exd",
        "gggg",
        "K",
        "ndA",
    ]:
        both.request(f"CONFIG SET notify-keyspace-events {letters}")
        both.request("CONFIG GET notify-keyspace-events")
    session, connection = both.client("A")
    for letters in (b"q", b"KE A", b"k"):
        argv = [b"CONFIG", b"SET", b"notify-keyspace-events", letters]
        connection.send(argv)
        both.engine.execute(session, argv, now_ms())
        known = re.compile(rb"Use '[^']*'")  # newer versions know more letters
        differ("A", argv, known.sub(b"", session.reply.take()), known.sub(b"", connection.reply()))
    both.end()


SHAPES = """
    SET K V|SET K V EX 100|SET K V KEEPTTL|SET K V NX|SET K V XX GET|SETNX K V|SETEX K 100 V|GETSET K V
    GETDEL K|GETEX K EX 50|GETEX K PERSIST|MSET K V K V|MSETNX K V K V|APPEND K V|SETRANGE K 3 V|INCR K
    DECRBY K 2|INCRBYFLOAT K 0.5|DEL K K|UNLINK K|EXPIRE K 100|EXPIRE K -1|PERSIST K|RENAME K K
    RENAMENX K K|COPY K K|COPY K K REPLACE|COPY K K DB 1|MOVE K 1|GET K|EXISTS K K|TTL K|STRLEN K
    SWAPDB 0 1|FLUSHDB|SELECT 0|SELECT 1|XADD K * f v|XADD K MAXLEN 2 * f v|XTRIM K MAXLEN 1|XDEL K 1-1
    XLEN K|TYPE K
"""
SHAPES = [shape.strip() for line in SHAPES.strip().splitlines() for shape in line.split("|")]


@pytest.mark.parametrize("seed", range(3))
def test_random_requests_make_the_same_events(listening, seed):
    chance = random.Random(seed)
    both = listening(chance.choice([2, 3]))
    told_of(both, "KEAnm")
    for number in range(1, ROUNDS):
        line = re.sub(r"\bK\b", lambda _: chance.choice("abcd"), chance.choice(SHAPES))
        line = re.sub(r"\bV\b", lambda _: str(chance.randint(0, 99)), line).replace(" * ", f" {number}-1 ")
        both.request(line)
    both.end()


@pytest.mark.parametrize("seed", range(2))
def test_random_subscriptions_hear_the_same_messages(listening, seed):
    chance = random.Random(seed)
    both = listening(3 if seed else 2)
    verbs = ["SUBSCRIBE", "SUBSCRIBE", "PSUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE"]
    verbs += ["SSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"]
    for _ in range(ROUNDS):
        if chance.random() < 0.5:
            channel = chance.choice("xyz") + chance.choice("xyz")
            both.request(f"{chance.choice(['PUBLISH', 'SPUBLISH'])} {channel} m", unordered=True)
        else:
            names = " ".join(chance.choices(["xx", "xy", "x?", "*z", "y[xy]", "zz"], k=chance.randint(1, 3)))
            both.request(f"{chance.choice('BCD')}> {chance.choice(verbs)} {names}")
    both.end()
