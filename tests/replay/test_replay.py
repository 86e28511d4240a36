"""Conversations of named clients with a settable clock, as readable text: every *.txt beside this file.

    # a comment
    protocol 2 3                              the script holds in both protocols; without this line in 2
    A> SET greeting "hello world"             a request; a quoted word is a Python literal
    OK                                        its reply
    B> XREAD BLOCK 5000 STREAMS s $
    (waits)                                   no reply yet
    A> XADD s 7-0 item pear
    "7-0"
    B< [["s", [["7-0", ["item", "pear"]]]]]   B hears because of it
    clock + 5000                              milliseconds later
    B leaves                                  the connection is lost

Replies: OK simple, "text" bulk, 1 integer, (error) ERR text, null, [array], {"map": 1}, 1.5, true,
(waits), (nothing) when answers are off, (closes) after the reply of one that is then closed.

A script that is wrong fails with a diff of the whole conversation. To accept what the engine says:

    HEADRACE_REPLAY_REWRITE=1 pytest tests/replay
"""

import ast
import difflib
import os
import pathlib
import re

import pytest

from headrace.engine.engine import Engine

SCRIPTS = sorted(pathlib.Path(__file__).parent.glob("*.txt"))
REQUEST = re.compile(r"(\w+)> (.*)")
CLOCK = re.compile(r"clock ([+=]) (\d+)")
LEAVES = re.compile(r"(\w+) leaves")
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
START_MS = 1_000_000


def words(line):
    return [
        ast.literal_eval("b" + word) if word.startswith('"') else word.encode() for word in WORD.findall(line)
    ]


def quoted(data):
    """Bytes as the text of a Python literal in double quotes."""
    return '"' + repr(data)[2:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def reading(data, at=0):
    """The reply at `at` as this file's text, and where it ends."""
    line_end = data.index(b"\r\n", at)
    kind, text, at = chr(data[at]), data[at + 1 : line_end].decode("latin-1"), line_end + 2
    if kind == "-":
        return f"(error) {text}", at
    if kind == "_" or (text == "-1" and kind in "$*"):
        return "null", at
    if kind == "#":
        return "true" if text == "t" else "false", at
    if kind in "+:,":
        return text, at
    if kind in "$=":
        body = data[at : at + int(text)]
        return quoted(body[4:] if kind == "=" else body), at + int(text) + 2
    parts = []
    for _ in range(int(text) * (2 if kind == "%" else 1)):
        part, at = reading(data, at)
        parts.append(part)
    if kind == "%":
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return "{" + ", ".join(f"{name}: {value}" for name, value in pairs) + "}", at
    return {"~": "set", ">": "push"}.get(kind, "") + "[" + ", ".join(parts) + "]", at


class Conversation:
    """Carries a script out; `said` is the script as it should have been written."""

    def __init__(self, protocol):
        self.engine = Engine()
        self.protocol = protocol
        self.now = START_MS
        self.sessions = {}
        self.said = []

    def session(self, name):
        if name not in self.sessions:
            self.sessions[name] = self.engine.create_session(b"%s:1" % name.encode(), b"here:1", self.now)
            self.sessions[name].reply.protocol = self.protocol
        return self.sessions[name]

    def carry_out(self, line):
        """Do what a line of the script says; lines that state a reply are passed over."""
        if request := REQUEST.fullmatch(line):
            self.said.append(line)
            self.ask(request[1], words(request[2]))
        elif clock := CLOCK.fullmatch(line):
            self.said.append(line)
            self.now = int(clock[2]) + (self.now if clock[1] == "+" else 0)
            self.engine.tick(self.now)
            self.hear()
        elif leaving := LEAVES.fullmatch(line):
            self.said.append(line)
            self.engine.close(self.sessions.pop(leaving[1]))
            self.hear()
        elif not line or line.startswith(("#", "protocol ")):
            self.said.append(line)

    def ask(self, name, argv):
        session = self.session(name)
        assert session.waiter is None, f"{name} is blocked and cannot say {argv}"
        self.engine.execute(session, argv, self.now)
        answer = session.reply.take()
        if session.waiter is not None:
            self.said.append("(waits)")
        self.tell("", answer) if answer else None
        if not answer and session.waiter is None:
            self.said.append("(nothing)")
        if session.closing:
            self.said.append("(closes)")
            self.engine.close(self.sessions.pop(name))
        self.hear()

    def tell(self, prefix, answer):
        at = 0
        while at < len(answer):
            text, at = reading(answer, at)
            self.said.append(prefix + text)

    def hear(self):
        """What others are answered because of the last line."""
        while self.engine.woken_sessions or self.engine.killed_sessions:
            woken, dropped = list(self.engine.woken_sessions), list(self.engine.killed_sessions)
            self.engine.woken_sessions.clear()
            self.engine.killed_sessions.clear()
            for name, session in list(self.sessions.items()):
                if session in woken:
                    self.tell(f"{name}< ", session.reply.take())
                if session in dropped:
                    self.said.append(f"{name}< (closes)")
                    self.engine.close(self.sessions.pop(name))


def protocols(script):
    for line in script.read_text().splitlines():
        if line.startswith("protocol "):
            return [int(word) for word in line.split()[1:]]
    return [2]


CASES = [
    pytest.param(script, protocol, id=f"{script.stem}-resp{protocol}")
    for script in SCRIPTS
    for protocol in protocols(script)
]


@pytest.mark.parametrize(("script", "protocol"), CASES)
def test_the_conversation_goes_as_written(script, protocol):
    written = [line.rstrip() for line in script.read_text().splitlines()]
    conversation = Conversation(protocol)
    for line in written:
        conversation.carry_out(line)
    said = [line.rstrip() for line in conversation.said]
    if said != written and "HEADRACE_REPLAY_REWRITE" in os.environ:
        script.write_text("\n".join(said) + "\n")
    elif said != written:
        diff = difflib.unified_diff(written, said, "as written", "as it went", lineterm="", n=4)
        pytest.fail("\n".join(diff), pytrace=False)
