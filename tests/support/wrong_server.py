"""A server that replies to every command with the same bytes."""

from __future__ import annotations

import socket
import threading

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
        self.url = f"redis://127.0.0.1:{self.socket.getsockname()[1]}"
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
