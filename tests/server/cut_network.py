"""A TCP proxy for a network that a test cuts: connections break, and new ones too, or get no answer."""

from __future__ import annotations

import contextlib
import socket
import threading

CHUNK = 1 << 16


class Network:
    """Forwards connections of `port` to another port of this machine, until it is closed."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._silent = self._broken = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, silent: bool = False) -> None:
        """Break all connections, and each new one at once; silent: accept it, but forward nothing."""
        with self._lock:
            self._broken, self._silent = not silent, silent
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        """Forward new connections again; those that are open stay silent."""
        with self._lock:
            self._broken = self._silent = False

    def close(self) -> None:
        """Break all connections and accept no more."""
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            with self._lock:
                broken, silent = self._broken, self._silent
                self._sockets.add(client)
            if broken:
                self._close(client)
            elif not silent:
                threading.Thread(target=self._forward_both, args=(client,), daemon=True).start()

    def _forward_both(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._target))
        with self._lock:
            self._sockets.add(server)
        back = threading.Thread(target=self._forward, args=(server, client), daemon=True)
        back.start()
        self._forward(client, server)
        back.join()
        self._close(client)
        self._close(server)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _close(self, each: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(each)
        each.close()
