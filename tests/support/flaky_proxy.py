"""A TCP proxy that cuts connections after a number of bytes, in the middle of a request or reply."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from dataclasses import dataclass

RESET = struct.pack("ii", 1, 0)


@dataclass
class Cut:
    """Close a connection after so many bytes up (to the server) or down. reset: by RST, not by FIN."""

    up: int | None = None
    down: int | None = None
    reset: bool = False


class FlakyProxy:
    """Listens on its own port. Each new connection gets the next cut; later ones are not cut."""

    def __init__(self, port: int, cuts: list[Cut]) -> None:
        self._to = port
        self.cuts = list(cuts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.connections = 0
        self.flowing = threading.Event()  # cleared: all connections stay open, and no byte passes
        self.flowing.set()
        self.bytes = [(0, 0)]  # up and down, of each connection that has ended
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            cut = self.cuts.pop(0) if self.cuts else Cut()
            self.connections += 1
            thread = threading.Thread(target=self._carry, args=(near, cut), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _carry(self, near: socket.socket, cut: Cut) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._to))
        except OSError:  # the server is down
            near.close()
            return
        left = {near: cut.up, far: cut.down}
        moved = {near: 0, far: 0}
        other = {near: far, far: near}
        waiting = (
            selectors.DefaultSelector()
        )  # select.select() fails in a process with 1,024 open descriptors
        for each in (near, far):
            waiting.register(each, selectors.EVENT_READ)
        try:
            while all(n is None or n > 0 for n in left.values()):
                for ready in [key.fileobj for key, _ in waiting.select()]:
                    assert isinstance(ready, socket.socket)
                    self.flowing.wait()
                    most = left[ready]
                    data = ready.recv(65536 if most is None else min(most, 65536))
                    if not data:
                        return
                    other[ready].sendall(data)
                    moved[ready] += len(data)
                    if most is not None:
                        left[ready] = most - len(data)
        except OSError:
            pass
        finally:
            waiting.close()
            self.bytes.append((moved[near], moved[far]))
            if cut.reset:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            near.close()
            far.close()

    def close(self) -> None:
        """Stop listening, and wait for the open connections to end."""
        self.flowing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        for thread in self._threads:
            thread.join(5)
