"""Requests to an engine as lines of text."""

from __future__ import annotations

from typing import Any

from headrace.commands.session import Session
from headrace.engine.engine import Engine


class Talk:
    """An engine, named clients, and a clock that stands still.

    Replies come as Python values: strings and numbers, lists, dicts (RESP3 maps); a refusal is its text
    behind a hyphen, a null is None, the null array of RESP2 is "nil-array".
    """

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.set_effect_recording(True)
        self.now = 1000
        self.clients: dict[str, Session] = {}

    def __call__(self, line: str, client: str = "a") -> Any:
        """Say a line of words; the reply, or "(waits)"."""
        return self.words(*line.split(), client=client)

    def words(self, *words: str | bytes, client: str = "a") -> Any:
        """Say words that may hold any bytes."""
        self.say(words, client)
        return self.heard(client)

    def raw(self, line: str, client: str = "a") -> bytes:
        """The reply's bytes."""
        self.say(line.split(), client)
        return self.clients[client].reply.take()

    def say(self, words: Any, client: str) -> None:
        if client not in self.clients:
            self.clients[client] = self.engine.create_session()
        argv = [w if isinstance(w, bytes) else w.encode() for w in words]
        self.engine.execute(self.clients[client], argv, self.now)

    def heard(self, client: str) -> Any:
        """Return what the client has received since the last call."""
        session = self.clients[client]
        if session.waiter is not None:
            return "(waits)"
        told = session.reply.take()
        if not told:
            return "(nothing)"
        value, rest = decode(told)
        assert not rest, f"more than one reply: {told!r}"
        return value

    def tick(self, now: int) -> None:
        self.now = now
        self.engine.tick(now)

    def order_served(self) -> list[str]:
        names = {session.id: name for name, session in self.clients.items()}
        return [names[session.id] for session in self.engine.woken_sessions]

    def effects(self) -> list[str]:
        """What the log got since it was last asked for."""
        return [b" ".join(words).decode() for _, words in self.engine.effects.take()]

    def node_entries(self, most: int) -> None:
        """Set stream-node-max-entries."""
        self.engine.keyspace.settings.stream_node_max_entries = most


def decode(data: bytes) -> tuple[Any, bytes]:
    """Return the first reply in data, and the bytes after it."""
    line, _, rest = data.partition(b"\r\n")
    kind, text = line[:1], line[1:].decode("utf-8", "surrogateescape")
    if kind == b"+":
        return text, rest
    if kind == b"-":
        return "-" + text, rest
    if kind == b":":
        return int(text), rest
    if kind == b",":
        return float(text), rest
    if kind == b"_" or (kind == b"$" and text == "-1"):
        return None, rest
    if kind == b"*" and text == "-1":
        return "nil-array", rest
    if kind in b"$=":
        n = int(text)
        return rest[:n].decode("utf-8", "surrogateescape"), rest[n + 2 :]
    assert kind in b"*%", f"a reply of kind {kind!r}"
    items = []
    for _ in range(int(text) * (2 if kind == b"%" else 1)):
        item, rest = decode(rest)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind == b"%" else items), rest
