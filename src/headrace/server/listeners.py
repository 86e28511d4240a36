"""Where clients come in: TCP addresses, with and without TLS, and a Unix socket; who is turned away."""

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
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.server.config import Config
from headrace.server.host import ServerHost
from headrace.server.turn import Turn

if TYPE_CHECKING:
    from headrace.server.tls import Tls

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
        self.tls_port = 0
        self.tls: Tls | None = None
        self.unix_path = ""
        # Given up for a moment when descriptors run out, so that the client can be told instead of left.
        self.spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def open(self) -> None:
        """Listen on all addresses of the configuration; raises HeadraceError when one cannot be had."""
        if self.config.shown("port") != "0":
            self.port = self._open_tcp("port")
        if self.config.shown("tls-port") != "0":
            from headrace.server.tls import Tls  # OpenSSL's megabyte is for those who use it

            self.tls = Tls(self.config, self.turn)
            self.tls_port = self._open_tcp("tls-port")
        path = self.config.text("unixsocket")
        if path:
            self._open_unix(path)
        if not self.sockets:
            raise HeadraceError("nothing to listen on: give a --port, a --tls-port or a --unixsocket")

    def described(self) -> list[str]:
        """Each kind of way in, as INFO tells of it."""
        binds = "".join(f"bind={word}," for word in self.config.shown("bind").split())
        ways = [
            f"name={name},{binds}port={port}"
            for name, port in (("tcp", self.port), ("tls", self.tls_port))
            if port
        ]
        return [*ways, f"name=unix,bind={self.unix_path}"] if self.unix_path else ways

    def _open_tcp(self, directive: str) -> int:
        """Listen on the directive's port at each address; which port that is."""
        shown = self.config.shown(directive)
        port = 0 if shown == "free" else int(shown)

        def listen(address: str) -> None:
            nonlocal port
            port = self._listen_tcp(address, port, directive == "tls-port")

        at_each_address(self.config, f"{directive} {port}", listen)
        self.config.adjust(directive, port)
        return port

    def _listen_tcp(self, address: str, port: int, encrypted: bool) -> int:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address, port))
            self._add(listener, encrypted)
        except OSError:
            listener.close()
            raise
        bound: int = listener.getsockname()[1]
        self.names.append(spelt((address, bound)) + (" (TLS)" if encrypted else ""))
        return bound

    def _open_unix(self, path: str) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            clear_stale_socket(path)
            permissions = self.config.number("unixsocketperm")
            if permissions:  # the file is born with them, but for what the umask takes
                os.fchmod(listener.fileno(), permissions)
            listener.bind(path)
            if permissions:
                os.chmod(path, permissions)
            self._add(listener)  # nobody can connect before
        except OSError as wrong:
            listener.close()
            raise HeadraceError(f"cannot listen on {path}: {wrong.strerror or wrong}") from None
        self.unix_path = path
        self.names.append(path)

    def _add(self, listener: socket.socket, encrypted: bool = False) -> None:
        listener.listen(self.config.number("tcp-backlog"))
        listener.setblocking(False)
        self.sockets.append(listener)
        self.turn.listen(listener.fileno(), lambda: self._accept(listener, encrypted))

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

    def _accept(self, listener: socket.socket, encrypted: bool) -> None:
        """Let in all who stand before the door."""
        for _ in range(ACCEPTS_MAX):
            try:
                client, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as wrong:
                if wrong.errno in (errno.EMFILE, errno.ENFILE):
                    self._turn_away(listener, encrypted)
                    continue
                if wrong.errno == errno.ECONNABORTED:
                    continue
                logging.getLogger("headrace").warning("accepting a client: %s", wrong)
                return
            try:
                self._admit(client, address, encrypted)
            except OSError as wrong:  # it has gone already
                logging.getLogger("headrace").info("admitting a client: %s", wrong)
                client.close()

    def _turn_away(self, listener: socket.socket, encrypted: bool) -> None:
        """No descriptor is left: use the spare one to say so. Unaccepted it would wake us for ever."""
        self.host.rejected += 1
        os.close(self.spare)
        try:
            client, _ = listener.accept()
            client.setblocking(False)
            refuse(client, TOO_MANY, encrypted)
        except OSError:
            pass
        finally:
            self.spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _admit(self, client: socket.socket, address: object, encrypted: bool) -> None:
        client.setblocking(False)
        if len(self.turn.connections) >= self.config.number("maxclients"):
            self.host.rejected += 1
            refuse(client, TOO_MANY, encrypted)
            return
        if client.family == socket.AF_UNIX:
            name = local_name = f"{self.unix_path}:0"
        else:
            assert isinstance(address, tuple)
            if self._is_protected() and not is_local(address[0]):
                self.host.rejected += 1
                refuse(client, PROTECTED, encrypted)
                return
            name, local_name = spelt(address), spelt(client.getsockname())
            self._tune(client)
        secure = self.tls.secured() if encrypted and self.tls is not None else None
        self.turn.add(client.detach(), name.encode(), local_name.encode(), secure)

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


def refuse(client: socket.socket, reason: bytes, encrypted: bool) -> None:
    """Say why, as far as that goes without waiting, and close; who encrypts would not understand it."""
    with client, suppress(OSError):
        if encrypted:
            logging.getLogger("headrace").info(
                "turning away a client with TLS: %s", reason[1:].decode().strip()
            )
        else:
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
