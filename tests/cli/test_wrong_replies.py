"""A program on the port that is no Redis server gives one line and exit code 1 or 2, in every command."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.main import COMMANDS, main
from headrace.client.reply_shapes import SHAPES, check_reply
from headrace.errors import UnexpectedReply

REPLIES = {
    "integer": b":5\r\n",
    "negative": b":-1\r\n",
    "string": b"$3\r\nabc\r\n",
    "empty string": b"$0\r\n\r\n",
    "not UTF-8": b"$2\r\n\xff\xfe\r\n",
    "null": b"$-1\r\n",
    "null list": b"*-1\r\n",
    "empty list": b"*0\r\n",
    "list": b"*2\r\n$1\r\na\r\n:1\r\n",
    "odd list": b"*3\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n",
    "nested list": b"*1\r\n*2\r\n*1\r\n:1\r\n$1\r\nb\r\n",
    "entries": b"*1\r\n*2\r\n$3\r\nxyz\r\n*3\r\n$1\r\nf\r\n$1\r\nv\r\n$1\r\nw\r\n",
    "deep list": b"*1\r\n" * 5000 + b":1\r\n",
    "map": b"%1\r\n+a\r\n:1\r\n",
    "set": b"~1\r\n:1\r\n",
    "push": b">2\r\n+invalidate\r\n*-1\r\n:1\r\n",
    "RESP3 null": b"_\r\n",
    "boolean": b"#t\r\n",
    "double": b",1.5\r\n",
    "status": b"+HELLO\r\n",
    "OK": b"+OK\r\n",
    "error": b"-ERR \x1b[31mno\r\n",
    "no permission": b"-NOPERM no\r\n",
    "negative length": b"$-7\r\n",
    "huge string": b"$99999999999\r\nabc",
    "huge list": b"*3000000\r\n",  # hiredis allocates it at once
    "half a list": b"*3\r\n$5\r\nab",
    "garbage": b"\x00\xff\x1b[31mgarbage\r\n\r\n",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n",
    "nothing": b"",
}
CUT = {"huge string", "huge list", "half a list", "nothing"}  # the connection is closed afterwards
# A polite server replies correctly to these, so that the commands get further.
GREETINGS = {b"HELLO": b"-ERR unknown command\r\n", b"CLIENT": b"+OK\r\n", b"SELECT": b"+OK\r\n"}
SEARCHES = GREETINGS | {
    b"TYPE": b"+stream\r\n",
    b"SCAN": b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\ns\r\n",
    b"INFO": b"$0\r\n\r\n",
    b"EXISTS": b":1\r\n",
}
POLITENESS = {"rude": {}, "greets": GREETINGS, "lists streams": SEARCHES}


class WrongServer:
    """Replies the same to every command except to those that it is polite about."""

    def __init__(self, reply: str, polite: dict[bytes, bytes]) -> None:
        self.reply, self.polite, self.cuts = REPLIES[reply], polite, reply in CUT
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = "redis://127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            try:
                while head := lines.readline():
                    words = []
                    for _ in range(int(head[1:])):
                        length = int(lines.readline()[1:])
                        words.append(lines.read(length + 2)[:-2])
                    name = words[0].upper()
                    connection.sendall(self.polite.get(name, self.reply))
                    if self.cuts and name not in self.polite:
                        return
            except (OSError, ValueError):
                return

    def close(self) -> None:
        self.socket.close()


@pytest.fixture(params=POLITENESS)
def polite(request: pytest.FixtureRequest) -> dict[bytes, bytes]:
    return POLITENESS[request.param]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    yield tmp_path


ARGUMENTS = {
    "ack": ["s", "g", "1-0"],
    "add": ["s", "f=v"],
    "archive": ["--stream", "s", "--to", "archive"],
    "groups": ["s"],
    "inspect": ["s"],
    "load": ["rows.csv", "--stream", "s"],
    "ls": [],
    "pending": ["s", "g"],
    "query": ["SELECT * FROM s"],
    "replay": ["--stream", "s", "--into", "t"],
    "rules": ["s"],
    "tail": ["s"],
    "top": ["--once", "--every", "0.1"],
    "trim": ["--stream", "s", "--dry-run"],
}
MORE = {
    "ls archives": ["ls", "--archives"],
    "rules set": ["rules", "s", "--max-len", "5"],
    "tail from": ["tail", "s", "--from", "-"],
    "tail group": ["tail", "s", "--group", "g"],
}
WITHOUT_SERVER = {"check", "demo", "recover", "serve"}
# What these print of a well-formed reply is right, however little sense it makes.
MAY_SUCCEED = {"ls", "ls archives", "top", "query", "trim", "archive"}


def test_every_command_that_talks_to_a_server_is_tried():
    assert set(ARGUMENTS) | WITHOUT_SERVER == set(COMMANDS)


@pytest.mark.parametrize("command", [*ARGUMENTS, *MORE])
def test_a_wrong_reply_gives_one_line(command, polite, directory, capsys):
    for reply in REPLIES:
        if command == "replay" and reply in CUT - {"nothing"}:  # it waits for a server that was lost
            continue
        server = WrongServer(reply, polite)
        try:
            words = MORE.get(command) or [command, *ARGUMENTS[command]]
            code = main([*words, "--url", server.url])
        finally:
            server.close()
        out, err = capsys.readouterr()
        assert code in ((0, 1, 2) if command in MAY_SUCCEED else (1, 2)), (reply, code, out, err)
        assert "\x1b[31m" not in out + err, (reply, err)
        if code:
            assert err.startswith("headrace: ") and err.count("\n") == 1, (reply, err)


@pytest.mark.parametrize("name", sorted(set(SHAPES) - {"COMMAND INFO"}))
def test_no_shape_accepts_or_breaks_at_what_is_not_a_reply_to_the_command(name):
    for reply in (1.5, {}, set(), True, [[[1]]], [b"a", 1], [b"\xff", [b"1-0", 5]], object()):
        with pytest.raises(UnexpectedReply, match="is not one of Redis"):
            check_reply("redis://localhost", name.split(), reply)
    check_reply("redis://localhost", name.split(), ValueError("an error reply"))
