"""Random histories of all commands that change something, told to an engine that records their effects."""

from __future__ import annotations

from headrace.engine.engine import Engine
from headrace.persistence.rule_records import recorded_command
from support.command_generator import CommandGenerator

START_MS = 1_700_000_000_000


class History:
    """An engine, some clients of it, and what they say; the same seed says the same.

    Streams live longer, and so have more that is pending, where the seed is even. Every fourth one restores.
    """

    def __init__(self, seed: int) -> None:
        self.generator = CommandGenerator("changes", seed)
        self.random = self.generator.random
        self.calm = seed % 2 == 0
        self.restoring = seed % 4 == 3
        self.rule = "calm" if self.calm else "restoring" if self.restoring else "command"
        self.now = START_MS
        self.latest = START_MS  # the clock is set back now and then
        self.engine = Engine()
        self.engine.set_effect_recording(True)
        self.sessions = [self.engine.create_session() for _ in range(4)]
        self.generator.known = [b"1-1", b"1-2"]
        self.say(0, "CONFIG SET stream-node-max-entries 4")
        for key, group in ("sg", "sh", "tg", "th", "ug"):
            self.say(0, f"XGROUP CREATE {key} {group} 0 MKSTREAM")

    def say(self, client: int, line: str) -> None:
        """Execute a request of a client, written as one line."""
        self.request(client, line.encode().split())

    def request(self, client: int, argv: list[bytes]) -> None:
        """Execute a request of a client, unless it is blocked."""
        session = self.sessions[client]
        if session.waiter is not None:
            return
        if argv[0] == b"RESTORE":
            argv[3] = self.payload(argv[3])
        self.engine.execute(session, argv, self.now)
        reply = session.reply.take()
        assert b"internal error" not in reply, argv
        if argv[0] == b"XADD" and reply.startswith(b"$"):
            self.generator.known.append(reply.split(b"\r\n")[1])

    def payload(self, key: bytes) -> bytes:
        """What DUMP says of the key."""
        session = self.engine.create_session()
        self.engine.execute(session, [b"DUMP", key], self.now)
        return session.reply.take().partition(b"\r\n")[2][:-2]

    def run(self, turns: int) -> None:
        """Say so many requests, and let time pass."""
        for _ in range(turns):
            r = self.random
            self.now += r.choice([0] * 8 + [1, 1, 7, 15, 40, -20] + ([] if self.calm else [300, 1500]))
            self.latest = max(self.latest, self.now)
            if r.random() < 0.2:
                self.engine.tick(self.now)
            self.generator.now = self.now
            self.request(r.choice([0, 0, 0, 1, 2, 3]), self.generator.command(self.rule))
            for session in self.sessions:
                session.reply.take()
            self.engine.woken_sessions.clear()
        for session in self.sessions:
            self.engine.unblock(session)
            if session.queue is not None:
                self.engine.execute(session, [b"DISCARD"], self.now)


class Follower:
    """An engine that repeats effects, as one that reads a log does: long after; nothing dies meanwhile."""

    def __init__(self, now_ms: int) -> None:
        self.engine = Engine()
        self.engine.keyspace.ignore_expiry = True
        self.engine.set_effect_recording(True)
        self.session = self.engine.create_session()
        self.session.replayed = True
        self.database = 0
        self.now = now_ms
        self.say([b"CONFIG", b"SET", b"stream-node-max-entries", b"3"])

    def say(self, words: list[bytes]) -> bytes:
        """Carry it out; the answer."""
        self.engine.execute(self.session, recorded_command(words) or words, self.now)
        return self.session.reply.take()

    def repeat(self, effects: list[tuple[int, list[bytes]]]) -> None:
        """Carry effects out; none may fail."""
        for database, words in effects:
            if database != self.database:
                self.database = database
                self.say([b"SELECT", b"%d" % database])
            answer = self.say(words)
            assert b"-ERR" not in answer and b"-NOGROUP" not in answer, (words, answer)
