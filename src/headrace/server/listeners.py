"""Where clients come in: TCP addresses and a Unix socket; who is let in and who is turned away."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.server.config import Config
from headrace.server.host import ServerHost
from headrace.server.turn import Turn

ACCEPTS_MAX = 1000  # in one turn
KEEPALIVE_MAX_S = 32767  # Linux refuses more

TOO_MANY = b"-ERR max number of clients reached\r\n"
PROTECTED = (
    b"-DENIED headrace answers only clients on its own machine while its default user needs no password. To "
    b"let others in, give him one: --requirepass or ACL SETUSER; or, on a network you trust, say "
    b"--protected-mode no.\r\n"
)


class Listeners:
    """The open sockets. A client that is admitted is the turn's from then on."""

    def __init__(self, config: Config, host: ServerHost, turn: Turn) -> None:
        self.config = config
        self.host = host
        self.turn = turn
        self.sockets: list[socket.socket] = []
        self.names: list[str] = []  # as a person would write them
        self.port = 0
        self.unix_path = ""
        # Given up for a moment when descriptors run out, so that the client can be told instead of left.
        self.spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def open(self) -> None:
        """Listen on all addresses of the configuration; raises HeadraceError when one cannot be had."""
        port = self.config.shown("port")
        if port != "0":
            self.port = 0 if port == "free" else int(port)
            self._open_tcp()
        path = self.config.text("unixsocket")
        if path:
            self._open_unix(path)
        if not self.sockets:
            raise HeadraceError("nothing to listen on: give a --port or a --unixsocket")

    def _open_tcp(self) -> None:
        at_each_address(self.config, f"port {self.port}", self._listen_tcp)

    def _listen_tcp(self, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address, self.port))
            self._add(listener)
        except OSError:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        self.names.append(f"[{address}]:{self.port}" if ":" in address else f"{address}:{self.port}")

    def _open_unix(self, path: str) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            clear_stale_socket(path)
            listener.bind(path)
            if permissions := self.config.number("unixsocketperm"):
                os.chmod(path, permissions)
            self._add(listener)
        except OSError as wrong:
            listener.close()
            raise HeadraceError(f"cannot listen on {path}: {wrong.strerror or wrong}") from None
        self.unix_path = path
        self.names.append(path)

    def _add(self, listener: socket.socket) -> None:
        listener.listen(self.config.number("tcp-backlog"))
        listener.setblocking(False)
        self.sockets.append(listener)
        self.turn.listen(listener.fileno(), lambda: self._accept(listener))

    def close(self) -> None:
        """Listen no more."""
        for listener in self.sockets:
            self.turn.forget(listener.fileno())
            listener.close()
        self.sockets.clear()
        os.close(self.spare)
        if self.unix_path:
            with suppress(OSError):
                os.unlink(self.unix_path)

    def _accept(self, listener: socket.socket) -> None:
        """Let in all who stand before the door."""
        for _ in range(ACCEPTS_MAX):
            try:
                client, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as wrong:
                if wrong.errno in (errno.EMFILE, errno.ENFILE):
                    self._turn_away(listener)
                    continue
                if wrong.errno == errno.ECONNABORTED:
                    continue
                logging.getLogger("headrace").warning("accepting a client: %s", wrong)
                return
            try:
                self._admit(client, address)
            except OSError as wrong:  # it has gone already
                logging.getLogger("headrace").info("admitting a client: %s", wrong)
                client.close()

    def _turn_away(self, listener: socket.socket) -> None:
        """No descriptor is left: use the spare one to say so. Unaccepted it would wake us for ever."""
        self.host.rejected += 1
        os.close(self.spare)
        try:
            client, _ = listener.accept()
            client.setblocking(False)
            refuse(client, TOO_MANY)
        except OSError:
            pass
        finally:
            self.spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _admit(self, client: socket.socket, address: object) -> None:
        client.setblocking(False)
        if len(self.turn.connections) >= self.config.number("maxclients"):
            self.host.rejected += 1
            refuse(client, TOO_MANY)
            return
        if client.family == socket.AF_UNIX:
            name = local_name = f"{self.unix_path}:0"
        else:
            assert isinstance(address, tuple)
            if self._is_protected() and not is_local(address[0]):
                self.host.rejected += 1
                refuse(client, PROTECTED)
                return
            name, local_name = spelt(address), spelt(client.getsockname())
            self._tune(client)
        self.turn.add(client.detach(), name.encode(), local_name.encode())

    def _is_protected(self) -> bool:
        """Whether only this machine's clients may come: whoever comes would need no password."""
        return self.config.flag("protected-mode") and self.turn.engine.guard.users.default.nopass

    def _tune(self, client: socket.socket) -> None:
        """Answers leave at once; a peer that has vanished is noticed."""
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds = min(self.config.number("tcp-keepalive"), KEEPALIVE_MAX_S)
        if seconds:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(seconds // 3, 1))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def refuse(client: socket.socket, reason: bytes) -> None:
    """Say why, as far as that goes without waiting, and close."""
    with client, suppress(OSError):
        client.send(reason)


def at_each_address(config: Config, port: str, listen: Callable[[str], None]) -> None:
    """Call listen with each address of `bind`. HeadraceError for one that cannot be had and has no `-`."""
    words = config.values["bind"]
    assert isinstance(words, list)
    for word in words:
        address = word.removeprefix("-")
        address = {"*": "0.0.0.0", "::*": "::"}.get(address, address)
        try:
            listen(address)
        except OSError as wrong:
            if word.startswith("-") and wrong.errno != errno.EADDRINUSE:
                continue
            raise HeadraceError(f"cannot listen on {address}, {port}: {wrong.strerror or wrong}") from None


def is_local(address: str) -> bool:
    """Whether an address is this machine's own, seen from itself."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def spelt(address: tuple[str, int]) -> str:
    """host:port, with brackets around an IPv6 host."""
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


def clear_stale_socket(path: str) -> None:
    """Remove what a dead server left behind; OSError when somebody still answers, or when it is no socket."""
    if not Path(path).exists() or not stat.S_ISSOCK(os.stat(path).st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
