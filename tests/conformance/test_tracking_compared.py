"""Clients that cache keys, beside a real redis-server: the same invalidations, in the same order."""

import random
import re

import pytest

from conformance.peer import PATIENCE_S, QUIET_S, Both, differ, now_ms, words
from conformance.test_pubsub_compared import split
from headrace.resp.request import request

ROUNDS = 400


class Caching(Both):
    """A dialogue in which requests joined by `||` are sent at once, and `$B` is the ID of the client B."""

    def client(self, name):
        if name not in self.clients:
            session, connection = super().client(name)
            if name.endswith("2"):  # a name like R2: speaks RESP2 in any dialogue
                self.tell(name, [b"HELLO", b"2"])
                connection.reply()
                session.reply.take()
            connection.send([b"CLIENT", b"ID"])
            self.ids[name] = (session.id, int(connection.reply()[1:]))
        return self.clients[name]

    def __init__(self, peer, protocol):
        super().__init__(peer, protocol)
        self.version = peer.version
        self.ids = {}

    def tell(self, name, *requests):
        """Send the requests to both servers at once."""
        session, connection = self.clients[name]
        connection.socket.sendall(b"".join(request(*self.with_ids(argv, 1)) for argv in requests))
        for argv in requests:
            self.engine.execute(session, self.with_ids(argv, 0), now_ms())

    def with_ids(self, argv, side):
        """Replace names by the IDs of one of the servers: 0 for this engine, 1 for the real server."""
        found = []
        for word in argv:
            if word.startswith(b"$") and word[1:].isalnum():
                self.client(word[1:].decode())
                word = b"%d" % self.ids[word[1:].decode()][side]
            found.append(word)
        return found

    def request(self, line):
        name, arrow, told = line.strip().partition("> ")
        if not arrow:
            name, told = "A", line.strip()
        self.client(name)
        self.tell(name, *(words(part) for part in told.split(" || ")))
        self.engine.tick(now_ms())
        self.engine.take_woken()
        self.hear(line, name)

    def hear(self, line, asked):
        """Compare what every client has received; a PING marks the end of what others have."""
        about_ids = "GETREDIR" in line
        for name in sorted(self.clients, key=lambda name: name != asked):
            session, connection = self.clients[name]
            if name != asked and session.queue is None and session.waiter is None and not session.reply_mode:
                self.tell(name, [b"PING"])
            ours = self.with_names(split(session.reply.take()), 0, about_ids)
            theirs = self.with_names([connection.reply(PATIENCE_S) for _ in ours], 1, about_ids)
            if "FLUSH" in line and self.version >= (8,):  # it informs the client itself before its reply
                ours.sort()
                theirs.sort()
            differ(name, [line.encode()], b"".join(ours), b"".join(theirs))

    def with_names(self, replies, side, about_ids):
        """Replace the IDs of redirections by names."""
        names = {b"%d" % ids[side]: name.encode() for name, ids in self.ids.items()}
        before = rb"(^:)" if about_ids else rb"(redirect\r\n:|redir-broken\r\n:)"
        return [
            re.sub(before + rb"(\d+)", lambda m: m[1] + names.get(m[2], m[2]), reply) for reply in replies
        ]

    def leave(self, name):
        """Close the client on both sides, and wait until the server knows."""
        session, connection = self.clients.pop(name)
        self.engine.close(session)
        connection.close()
        _, control = self.client("A")
        gone = b"id=%d " % self.ids[name][1]
        while True:
            control.send([b"CLIENT", b"LIST"])
            if gone not in control.reply():
                return

    def end(self):
        for name, (session, connection) in self.clients.items():
            differ(name, [b"(more)"], session.reply.take(), connection.reply(QUIET_S))


@pytest.fixture
def caching(peer):
    made = []

    def begin(dialogue, protocol=3):
        peer.clean()
        made.append(Caching(peer, protocol))
        for line in dialogue.splitlines():
            if line.strip():
                made[-1].request(line)
        return made[-1]

    yield begin
    for one in made:
        one.close()
    peer.clean()


DIALOGUES = {
    "options": """
        CLIENT TRACKING
        CLIENT TRACKING maybe
        CLIENT TRACKING ON FOO
        CLIENT TRACKING maybe REDIRECT x
        CLIENT TRACKING ON REDIRECT
        CLIENT TRACKING ON REDIRECT x
        CLIENT TRACKING ON REDIRECT 999999999
        CLIENT TRACKING ON REDIRECT -1
        CLIENT TRACKING ON REDIRECT 0
        CLIENT GETREDIR
        CLIENT TRACKING ON REDIRECT $A
        CLIENT TRACKINGINFO
        CLIENT TRACKING ON REDIRECT $A REDIRECT $A
        CLIENT TRACKING OFF REDIRECT $A
        CLIENT GETREDIR
        CLIENT TRACKING OFF FOO
        CLIENT TRACKING ON PREFIX a
        CLIENT TRACKING ON PREFIX
        CLIENT TRACKING ON BCAST PREFIX a PREFIX a
        CLIENT TRACKING ON BCAST PREFIX ab PREFIX c PREFIX a
        CLIENT TRACKING on bcast prefix b PREFIX a
        CLIENT TRACKINGINFO
        CLIENT TRACKING ON BCAST PREFIX b
        CLIENT TRACKING ON BCAST PREFIX ba
        CLIENT TRACKING ON BCAST
        CLIENT TRACKING ON BCAST NOLOOP PREFIX c
        CLIENT TRACKINGINFO
        CLIENT TRACKING ON
        CLIENT TRACKING ON BCAST OPTIN PREFIX q
        CLIENT TRACKING ON OPTIN OPTOUT
        CLIENT TRACKING OFF
        CLIENT TRACKINGINFO
        CLIENT TRACKING ON OPTIN OPTOUT
        CLIENT TRACKING ON BCAST OPTIN
        CLIENT TRACKING ON OPTIN OPTIN
        CLIENT TRACKING ON OPTOUT
        CLIENT TRACKING ON
        CLIENT TRACKING ON OPTOUT
        CLIENT TRACKING ON BCAST
        CLIENT TRACKING ON BCAST OPTIN
        RESET
        CLIENT TRACKINGINFO
        CLIENT TRACKINGINFO x
        CLIENT GETREDIR x
    """,
    "the choice of keys to cache": """
        CLIENT CACHING YES
        CLIENT CACHING maybe
        CLIENT TRACKING ON OPTOUT
        CLIENT CACHING
        CLIENT CACHING maybe
        CLIENT CACHING YES
        CLIENT CACHING NO || CLIENT TRACKINGINFO || CLIENT GETNAME || CLIENT TRACKINGINFO
        PING || CLIENT TRACKINGINFO
        CLIENT CACHING NO || NONSENSE || CLIENT TRACKINGINFO
        CLIENT CACHING NO || GET || CLIENT TRACKINGINFO
        CLIENT CACHING NO || CLIENT NONSENSE || CLIENT TRACKINGINFO
        CLIENT CACHING NO || CLIENT GETNAME x || CLIENT TRACKINGINFO
        GET q
        CLIENT CACHING NO || GET r
        B> MSET q 1 r 1
        CLIENT TRACKING OFF || CLIENT TRACKING ON OPTIN NOLOOP
        CLIENT CACHING NO
        CLIENT CACHING YES || CLIENT TRACKINGINFO
        GET k0 || CLIENT CACHING YES || GET k1 || GET k2
        B> MSET k0 1 k1 1 k2 1
        CLIENT CACHING YES || MULTI || CLIENT TRACKINGINFO || GET k1 || EXEC || CLIENT TRACKINGINFO
        B> MSET k0 1 k1 1 k2 1
        MULTI || GET k0 || CLIENT CACHING YES || GET k2 || EXEC || CLIENT TRACKINGINFO
        B> MSET k0 1 k1 1 k2 1
        CLIENT CACHING YES || MULTI || DISCARD || CLIENT TRACKINGINFO
        CLIENT CACHING YES || MULTI || GET k1 || GET || EXEC || CLIENT TRACKINGINFO
        B> SET k1 1
    """,
    "keys that were read": """
        CLIENT TRACKING ON
        GET k
        B> SET k 1
        B> SET k 1
        GET k || SET k 2 || GET k || SET k 3 || PING
        MULTI || GET k || SET k 4 || GET k || SET k 5 || SET k 6 || EXEC
        GET k
        B> MULTI || SET k 4 || GET k || SET k 5 || EXEC
        MGET a b c a
        B> MSET c 1 b 1 a 1 c 2
        MGET a b c
        B> DEL c a
        GET a
        B> DEL a
        B> FLUSHALL
        B> SET a 1
        B> SWAPDB 0 1
        GET a
        B> SWAPDB 0 1
        B> SET a 1
        GET a
        B> SELECT 3
        B> SET a 1
        B> SELECT 0
        XLEN a
        B> SET a 3
        GET a
        B> EXPIRE a 100
        GET a
        B> PERSIST a
        GET a
        B> GETEX a EX 100
        TTL a
        B> RENAME a b
        GET a
        GET b
        B> COPY b a
        B> MOVE b 3
        EXISTS q q2
        B> MSET q 1 q2 1
        TYPE q
        B> GETDEL q
        GETEX q2
        B> SET q2 1
        WATCH q2
        B> SET q2 1
        UNWATCH
        OBJECT ENCODING q2
        B> SET q2 2 GET
        SELECT 2
        GET q
        B> SET q 1
        SELECT 0
        CLIENT TRACKING OFF
        GET q
        B> SET q 1
        CLIENT TRACKING ON
        GET q
        CLIENT TRACKING OFF
        B> SET q 1
        CLIENT TRACKING ON
        B> SET q 1
        GET q
        CLIENT TRACKING OFF || CLIENT TRACKING ON
        B> SET q 1
        GET q
        CLIENT TRACKING OFF || CLIENT TRACKING ON BCAST
        B> SET q 1
    """,
    "streams": """
        CLIENT TRACKING ON
        XREAD STREAMS s t 0 0
        B> XADD t 1-1 f v
        B> XADD s 1-1 f v
        XRANGE s - +
        B> XGROUP CREATE s g 0
        XLEN s
        B> XREADGROUP GROUP g c STREAMS s >
        XPENDING s g
        B> XACK s g 1-1
        B> XADD s 2-1 f v
        XREVRANGE s + -
        B> XDEL s 1-1
        XLEN s
        B> XTRIM s MAXLEN 0
        XREADGROUP GROUP g c STREAMS s >
        B> XADD s 3-1 f v
        XREAD BLOCK 0 STREAMS s $
        B> XADD s 4-1 f v
        XPENDING s g
        B> XGROUP DESTROY s g
        B> XADD s 5-1 f v
    """,
    "replies that are muted": """
        CLIENT TRACKING ON
        CLIENT REPLY OFF
        GET q
        B> SET q 1
        CLIENT REPLY ON
        CLIENT REPLY SKIP || GET q || PING
        B> SET q 1
        CLIENT REPLY SKIP || GET q
        SET q 1
        CLIENT REPLY OFF
        GET q || SET q 1
        CLIENT REPLY ON
    """,
    "messages to the client itself": """
        CLIENT TRACKING ON
        B> SUBSCRIBE ch
        B> CLIENT TRACKING ON
        B> GET q
        MULTI || PUBLISH ch m1 || SET q 1 || PUBLISH ch m2 || EXEC
        B> CONFIG SET notify-keyspace-events KEA
        B> SUBSCRIBE __keyspace@0__:q
        B> GET q
        SET q 1
    """,
    "NOLOOP": """
        CLIENT TRACKING ON NOLOOP
        GET a
        SET a 1
        GET a
        B> SET a 1
        GET a
        B> FLUSHALL
        CLIENT TRACKING ON
        CLIENT TRACKINGINFO
        B> CLIENT TRACKING ON BCAST PREFIX b PREFIX a NOLOOP
        B> MSET b1 1 a1 1
        MSET b1 1 a1 1
        B> GET a1 || SET a1 2
    """,
    "BCAST": """
        CLIENT TRACKING ON BCAST
        B> SET q 1
        SET z 1 || SET y 1 || GET z || SET a 1 || SET z 2
        B> MULTI || SET y 1 || SET x 1 || EXEC || SET w 1
        B> FLUSHALL
        C> CLIENT TRACKING ON BCAST PREFIX b PREFIX a
        B> MSET b1 1 a1 1 b0 1 c 1 a0 1
        C> MSET b1 1 a1 1 b0 1 c 1 a0 1
        C> MULTI || SET a1 2 || DEL b0 || EXEC
        C> CLIENT TRACKING OFF
        B> MSET b1 1 a1 1
        B> SET "" 1
        CLIENT TRACKING OFF
        B> SET q 1
    """,
    "redirection": """
        B> CLIENT TRACKING ON REDIRECT $R2
        R2> PING
        B> GET k
        SET k 1
        R2> SUBSCRIBE x
        B> GET k
        SET k 1
        B> GET k
        B> SET k 1
        R2> UNSUBSCRIBE
        B> GET k
        SET k 1
        R2> SSUBSCRIBE x
        B> GET k
        SET k 1
        R2> SUNSUBSCRIBE x
        R2> HELLO 3
        B> GET k
        SET k 1
        B> GET k
        FLUSHDB
        B> CLIENT TRACKING OFF || CLIENT TRACKING ON BCAST REDIRECT $R2
        MSET b 1 a 1
        B> MSET b 1 a 1
        B> CLIENT TRACKINGINFO
        B> CLIENT GETREDIR
    """,
}


@pytest.mark.parametrize("name", DIALOGUES)
def test_invalidations_are_the_same(caching, name):
    dialogue = DIALOGUES[name].replace("HELLO 3", "CLIENT GETNAME")  # HELLO's reply has the version
    caching(dialogue).end()


def test_a_client_in_resp2_is_informed_only_through_another_one(caching):
    both = caching(DIALOGUES["redirection"].replace("HELLO 3", "GET k"), protocol=2)
    both.request("CLIENT TRACKING ON")
    both.request("GET k")
    both.request("B> SET k 1")
    both.request("R2> SUBSCRIBE __redis__:invalidate")
    both.request("B> CLIENT TRACKING OFF || CLIENT TRACKING ON REDIRECT $R2")
    both.request("B> GET k")
    both.request("A> FLUSHALL")
    both.end()


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_redirection_to_a_client_that_left_is_reported_broken(caching, protocol):
    both = caching("B> CLIENT TRACKING ON REDIRECT $R2 || GET k", protocol)
    both.leave("R2")
    both.request("B> CLIENT TRACKINGINFO")
    both.request("A> SET k 1")
    both.request("B> CLIENT TRACKINGINFO")
    both.request("B> GET k")
    both.request("B> SET k 1")
    both.request("B> GET k")
    both.request("A> FLUSHALL")
    both.request("B> CLIENT GETREDIR")
    both.request("B> CLIENT TRACKING ON")
    both.request("B> CLIENT TRACKINGINFO")
    both.end()


SHAPES = """
    SET K V|SET K V EX 100|SET K V NX|SET K V GET|GET K|GETSET K V|GETDEL K|GETEX K EX 50|GETEX K|MGET K K K
    MSET K V K V|MSETNX K V K V|APPEND K V|SETRANGE K 3 V|GETRANGE K 0 1|INCR K|INCRBYFLOAT K 0.5|DEL K K
    UNLINK K|EXPIRE K 100|EXPIRE K -1|PERSIST K|TTL K|RENAME K K|RENAMENX K K|COPY K K|COPY K K REPLACE
    MOVE K 1|EXISTS K K|TYPE K|STRLEN K|XADD S * f v|XADD S MAXLEN 2 * f v|XTRIM S MAXLEN 1|XLEN S
    XRANGE S - + COUNT 1|XREAD COUNT 1 STREAMS S S 0 0|XGROUP CREATE S g 0 MKSTREAM|XGROUP DESTROY S g
    XREADGROUP GROUP g c STREAMS S >|XPENDING S g|XACK S g 1-1|XSETID S 9999-1
    XDEL S 1-1|FLUSHDB|SELECT 0|SELECT 1
    MULTI|EXEC|EXEC|EXEC|DISCARD|WATCH K|UNWATCH
    CLIENT TRACKING ON|CLIENT TRACKING ON NOLOOP|CLIENT TRACKING OFF|CLIENT TRACKING ON OPTIN
    CLIENT TRACKING ON OPTOUT|CLIENT CACHING YES|CLIENT CACHING NO|CLIENT TRACKING ON BCAST
    CLIENT TRACKING ON BCAST PREFIX a PREFIX b|CLIENT TRACKING ON BCAST NOLOOP PREFIX s|CLIENT TRACKINGINFO
"""
CHOICES = [shape.strip() for line in SHAPES.strip().splitlines() for shape in line.split("|")]


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_invalidate_the_same_keys(caching, seed):
    chance = random.Random(seed)
    both = caching("CLIENT TRACKING ON")
    for number in range(1, ROUNDS):
        shape = chance.choice(CHOICES)
        line = re.sub(r"\bK\b", lambda _: chance.choice(["a", "b", "ab", "c", "s"]), shape)
        line = re.sub(r"\bS\b", lambda _: chance.choice("st"), line)
        line = re.sub(r"\bV\b", lambda _: str(chance.randint(0, 99)), line).replace(" * ", f" {number}-1 ")
        both.request(f"{chance.choice('AABC')}> {line}")
    both.end()
