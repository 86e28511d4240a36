"""A real redis-server beside the engine, and one conversation held with both, compared byte for byte.

    def test_something(peer):
        peer.compare('''
            SET k v             # client A, when no name is given
            GET k
            B> GET "k\\x00"     # another client; quotes and escapes as in Python
            B> XREAD BLOCK 0 STREAMS s $
            XADD s 1-1 f v      # B's answer is compared, too
            sleep 20            # milliseconds, really
        ''', protocol=3)

A line that ends in `#!` runs on both sides and is not compared (a reply that holds a time, say).
"""

import ast
import re
import socket
import time

from headrace.engine.engine import Engine
from support.cold_support import RunsInMemory
from support.redis_programs import engine_with_format_of

WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
QUIET_S = 0.02  # how long a blocked client must stay silent to be called blocked
PATIENCE_S = 5.0


def words(line):
    """The words of a request line as bytes; a quoted word is a Python literal."""
    return [
        ast.literal_eval("b" + word) if word.startswith('"') else word.encode() for word in WORD.findall(line)
    ]


def conversations(file):
    """The text under each `== heading` of a file."""
    return {
        heading: text.strip()
        for heading, _, text in (part.partition("\n") for part in file.read_text().split("\n== ")[1:])
    }


def reply_end(data, at=0):
    """Where the reply that begins at `at` ends; -1 when it is cut. Shares no code with ours."""
    line_end = data.find(b"\r\n", at)
    if line_end < 0:
        return -1
    kind, text, at = data[at : at + 1], data[at + 1 : line_end], line_end + 2
    if kind in b"+-:_,#(":
        return at
    count = int(text)
    if kind in b"$=!":
        end = at if count < 0 else at + count + 2
        return end if end <= len(data) else -1
    for _ in range(count * 2 if kind in b"%|" else count):
        at = reply_end(data, at)
        if at < 0:
            return -1
    return at


def value(data, at=0):
    """The reply at `at`, a map as a list of pairs, and where it ends."""
    line_end = data.index(b"\r\n", at)
    kind, text, at = data[at : at + 1], data[at + 1 : line_end], line_end + 2
    if kind == b":":
        return int(text), at
    if kind in b"+-_" or text == b"-1":
        return kind + text, at
    if kind == b"$":
        return data[at : at + int(text)], at + int(text) + 2
    items = []
    for _ in range(int(text) * (2 if kind == b"%" else 1)):
        item, at = value(data, at)
        items.append(item)
    return items, at


def without_losses(group):
    """A group as XINFO shows it, without the fields that only Headrace has."""
    return {name: value for name, value in fields(group).items() if not name.startswith(b"lost-")}


def fields(flat):
    return dict(zip(flat[::2], flat[1::2], strict=True))


class Connection:
    """One client of the real server."""

    def __init__(self, port, protocol):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        if protocol == 3:
            self.send([b"HELLO", b"3"])
            self.reply()

    def send(self, argv):
        head = b"*%d\r\n" % len(argv)
        self.socket.sendall(head + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in argv))

    def reply(self, patience=PATIENCE_S):
        """One whole reply; b"" when none comes in time or the server has closed."""
        deadline = time.monotonic() + patience
        while (end := reply_end(self.data)) < 0:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                more = self.socket.recv(1 << 16)
            except TimeoutError:
                return b""
            if not more:
                return b""
            self.data += more
        reply, self.data = self.data[:end], self.data[end:]
        return reply

    def close(self):
        self.socket.close()


class Both:
    """One conversation, held with a new engine and an emptied server."""

    def __init__(self, peer, protocol):
        self.port = peer.port
        self.protocol = protocol
        self.engine = engine_with_format_of(peer.version)
        self.clients = {}

    def client(self, name):
        if name not in self.clients:
            session = self.engine.create_session(now_ms=now_ms())
            session.reply.protocol = self.protocol
            self.clients[name] = (session, Connection(self.port, self.protocol))
        return self.clients[name]

    def say(self, name, argv, compared=True):
        """Send the request to both; the replies, and what other clients receive, must agree."""
        session, connection = self.client(name)
        self.engine.execute(session, argv, now_ms())
        ours = session.reply.take()
        connection.send(argv)
        theirs = connection.reply(PATIENCE_S if ours else QUIET_S)
        if compared:
            differ(name, argv, ours, theirs)
        self.others_hear(argv)

    def others_hear(self, because):
        self.engine.tick(now_ms())
        for name, (session, connection) in self.clients.items():
            if session in self.engine.woken_sessions:
                ours = session.reply.take()
                differ(name, because, ours, connection.reply(PATIENCE_S if ours else QUIET_S))
        self.engine.woken_sessions.clear()

    def sleep(self, ms):
        time.sleep(ms / 1000)
        self.others_hear([b"sleep"])

    def close(self):
        for session, connection in self.clients.values():
            self.engine.close(session)
            connection.close()


class Pair:
    """A client of a new engine and a client of the server, which send the same requests; see agree()."""

    def __init__(self, peer):
        self.port = peer.port
        self.version = peer.version
        self.engine = Engine()
        self.cold = None
        self.session = self.engine.create_session()
        self.connection = Connection(peer.port, 2)
        for line in ("FLUSHALL", "CONFIG SET stream-node-max-entries 100 stream-node-max-bytes 4096"):
            self.both(words(line))

    def cool_if(self, wanted):
        """If wanted, keep only the last node of each stream in memory from now on: the rest is cold."""
        if not wanted:
            return
        self.cold = self.engine.open_cold_storage(RunsInMemory(), 1)
        self.cold.run_bytes = 100
        self.cold.cache.limit = 1

    def both(self, argv, compare=True):
        """Send a request to both; the replies must agree."""
        self.engine.execute(self.session, argv, self.now())
        ours = self.session.reply.take()
        if self.cold is not None:
            self.cold.cool_all_to_limit()
            compare = compare and argv[0].upper() != b"XINFO"  # which shows cold entries
        if self.is_rejected_by_newer_servers_only(ours):
            return
        self.connection.send(argv)
        theirs = self.connection.reply()
        if compare:
            self.agree(argv, ours, theirs)

    def is_rejected_by_newer_servers_only(self, ours):
        """Return whether an older server would run the request: it must not get it, or the data differ."""
        return False

    def now(self):
        """The engine's time in milliseconds."""
        return now_ms()

    def agree(self, argv, ours, theirs):
        """Compare two replies; a subclass permits what an older server does otherwise."""
        differ("A", argv, ours, theirs)

    def close(self):
        self.connection.close()
        assert self.cold is None or self.cold.runs_stored > 0


def now_ms():
    return time.time_ns() // 1_000_000


def differ(name, argv, ours, theirs):
    shown = b" ".join(argv)[:500].decode("ascii", "backslashreplace")
    assert ours == theirs, f"{name}> {shown}\n  ours   {ours[:2000]!r}\n  theirs {theirs[:2000]!r}"


class Peer:
    """A redis-server of the tests' own, and its version: (7, 0, 15)."""

    def __init__(self, port, version):
        self.port = port
        self.version = version
        self.control = Connection(port, 2)

    def compare(self, conversation, protocol=2):
        """Hold the conversation, a text of lines, with both; the first reply that differs fails."""
        both = self.both(protocol)
        try:
            for line in conversation.splitlines():
                told, _, remark = line.partition("#")
                told = told.strip()
                name, arrow, request = told.partition("> ")
                if not arrow or not name.isidentifier():
                    name, request = "A", told
                if request.startswith("sleep "):
                    both.sleep(int(request.split()[1]))
                elif request:
                    both.say(name, words(request), not remark.startswith("!"))
        finally:
            both.close()

    def both(self, protocol=2):
        """A new conversation to be held request by request: both().say(name, argv), then close()."""
        self.clean()
        return Both(self, protocol)

    def clean(self):
        """As a server that has just been started, whatever the last conversation did to it."""
        settings = 'stream-node-max-bytes 4096 stream-node-max-entries 100 notify-keyspace-events ""'
        for request in ("FLUSHALL", "CONFIG RESETSTAT", f"CONFIG SET {settings}"):
            self.control.send(words(request))
            assert self.control.reply() == b"+OK\r\n"
