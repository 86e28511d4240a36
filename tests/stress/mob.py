"""Clients that mean no good, thousands at once, in one thread: they connect, send anything, stall, vanish.

Each one chooses a part, plays it for a few strokes, and is replaced by another. What they write goes to a few
keys that begin with `mob:`, so that all of it can be taken away again.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator

from support.speaking import encoded

RESET = struct.pack("ii", 1, 0)  # close() sends RST
STROKES_AT_ONCE = 200
PAUSE_S = 0.02  # between so many: the server shall be busy, not choked
READ_BYTES = 1 << 16


def rubbish(r: random.Random) -> Iterator[bytes]:
    """Random bytes; some look like the beginning of something."""
    while True:
        head = r.choice(
            [b"", b"*", b"*3\r\n$", b"*-1\r\n", b"$5\r\n", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01"]
        )
        yield head + r.randbytes(r.randrange(1, 2000))


def halves(r: random.Random) -> Iterator[bytes]:
    """A right request, a few bytes at a time, that never comes to its end."""
    request = encoded("XADD", "mob:s", "*", "field", "v" * 3000)
    at = 0
    while at < len(request) - 1:
        n = r.randrange(1, 200)
        yield request[at : min(at + n, len(request) - 1)]
        at += n
    while True:
        yield b""


def giants(r: random.Random) -> Iterator[bytes]:
    """Lengths that promise more than will ever come, or more than there is."""
    yield r.choice(
        [
            b"*1048576\r\n$536870912\r\n",
            b"*1048576\r\n" + b"$1\r\nx\r\n" * 500,
            b"*2\r\n$536870912\r\n",
            b"*2147483647\r\n",
            b"*9223372036854775807\r\n$1\r\n",
            b"*1\r\n$99999999999999999999\r\n",
            b"*2\r\n$3\r\nGET\r\n$-5\r\n",
        ]
    )
    while True:
        yield r.randbytes(r.randrange(1, 60000))


def requests(r: random.Random) -> Iterator[bytes]:
    """Right requests in pipelines; the answers are read now and then, or never."""
    lines = [
        "XADD mob:s MAXLEN 200 * field {x}",
        "XADD mob:t MAXLEN ~ 200 * field {x}",
        "XRANGE mob:s - +",
        "XREVRANGE mob:t + - COUNT 5",
        "XGROUP CREATE mob:s g 0 MKSTREAM",
        "XREADGROUP GROUP g c{n} COUNT 5 STREAMS mob:s >",
        "XACK mob:s g 1-1",
        "XAUTOCLAIM mob:s g c{n} 0 -",
        "XINFO STREAM mob:s FULL",
        "SET mob:{n} {x}",
        "SETEX mob:e{n} 1 {x}",
        "GET mob:{n}",
        "INFO",
        "COMMAND DOCS",
        "SCRIPT LOAD return{n}",
        "ACL SETUSER nobody{n} nonsense",
        "NOSUCHCOMMAND {x}",
        "XADD mob:s nonsense",
        "CONFIG SET nonsense 5",
        "DUMP mob:s",
        "RESTORE mob:r 0 {x}",
    ]
    while True:
        some = (r.choice(lines).format(n=r.randrange(8), x="x" * r.randrange(300)) for _ in range(8))
        yield b"".join(encoded(*line.split()) for line in some)
        if r.random() < 0.01:
            yield encoded("CLIENT", "LIST")  # a line for each of the thousands


def waiters(r: random.Random) -> Iterator[bytes]:
    """What leaves something behind with the server: a wait, a subscription, a transaction, a watch."""
    yield encoded(
        *r.choice(
            [
                "XREAD BLOCK 0 STREAMS mob:s mob:t $ $",
                "XREAD BLOCK 50 STREAMS mob:none $",
                "XREADGROUP GROUP g w BLOCK 0 STREAMS mob:s >",
                "SUBSCRIBE mob:a mob:b",
                "PSUBSCRIBE mob:*",
                "MONITOR",
                "WATCH mob:s mob:t",
                "CLIENT REPLY OFF",
                "WAITAOF 1 0 0",
            ]
        ).split()
    )
    if r.random() < 0.5:
        yield encoded("MULTI") + encoded("XADD", "mob:s", "MAXLEN", "200", "*", "f", "v") * 50
    while True:
        yield b"" if r.random() < 0.7 else encoded("PUBLISH", "mob:a", "x" * 1000)


PARTS = [rubbish, halves, giants, requests, requests, waiters]


class Fiend:
    """One of them."""

    def __init__(self, port: int, r: random.Random) -> None:
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.connect_ex(("127.0.0.1", port))
        part = r.choice(PARTS)
        self.name = part.__name__
        self.said = part(r)
        self.left = r.randrange(1, 12)  # strokes
        self.reads = r.random() < 0.6
        self.unsent = b""

    def stroke(self, r: random.Random) -> bool:
        """Do something; whether there is more to come."""
        self.left -= 1
        if r.random() < 0.3:
            return self.left > 0  # stalls
        try:
            self.unsent = self.unsent or next(self.said, b"")
            if self.unsent:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
            if self.reads:
                self.sock.recv(READ_BYTES)
        except BlockingIOError:
            pass
        except OSError:
            return False  # it was thrown out
        return self.left > 0

    def vanish(self, r: random.Random) -> None:
        """By a reset, in good order, or half."""
        with self.sock, contextlib.suppress(OSError):
            how = r.randrange(3)
            if how == 0:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            elif how == 1:
                self.sock.shutdown(socket.SHUT_WR)


class Mob:
    """So many of them at a time, until the time is up."""

    def __init__(self, port: int, size: int, seed: int) -> None:
        self.port = port
        self.size = size
        self.random = random.Random(seed)
        self.played: Counter[str] = Counter()
        self.fiends: list[Fiend] = []

    def rage(self, seconds: float) -> None:
        """All of them are there at once before the first one goes."""
        r = self.random
        while len(self.fiends) < self.size:
            self.fiends.append(self._another())
            if len(self.fiends) % STROKES_AT_ONCE == 0:
                time.sleep(0.01)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(STROKES_AT_ONCE):
                i = r.randrange(self.size)
                if not self.fiends[i].stroke(r):
                    self.fiends[i].vanish(r)
                    self.fiends[i] = self._another()
            time.sleep(PAUSE_S)
        for fiend in self.fiends:
            fiend.vanish(r)
        self.fiends.clear()

    def _another(self) -> Fiend:
        fiend = Fiend(self.port, self.random)
        self.played[fiend.name] += 1
        return fiend
