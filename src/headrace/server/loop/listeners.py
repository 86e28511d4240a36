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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, UsageError
from headrace.server.config.config import Config, set_failed
from headrace.server.host import ServerHost
from headrace.server.loop.event_loop import Turn
from headrace.server.observe.logs import NOTICE

if TYPE_CHECKING:
    from headrace.server.loop.tls import Tls

ACCEPTS_MAX = 1000  # in one turn
KEEPALIVE_MAX_S = 32767  # Linux refuses more
PORTS = ("port", "tls-port")

NO_PORT = "Unable to listen on this port. Check server logs."

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
        self.sockets: dict[str, list[socket.socket]] = {}  # by the directive that asked for them
        self.ports: dict[str, int] = {}  # which port that is; 0 for none
        self.tls: Tls | None = None
        self.unix_path = ""
        self.stuck = False  # nobody can be let in, though somebody stands there
        # Given up for a moment when descriptors run out, so that the client can be told instead of left.
        self.spare = spare_descriptor()  # -1 for none

    def open(self) -> None:
        """Listen on all addresses of the configuration; raises HeadraceError when one cannot be had."""
        for directive in PORTS:
            self._move(directive, self._opened(directive))
        path = self.config.text("unixsocket")
        if path:
            self._open_unix(path)
        if not any(self.sockets.values()):
            raise HeadraceError("nothing to listen on: give a --port, a --tls-port or a --unixsocket")
        self._tell()

    def follow(self) -> bool:
        """Move to the ports that CONFIG SET has given, if open() was called before; whether there was one.

        Clients stay. CommandError when a port cannot be had, and then all doors are those of before.
        """
        moved = [name for name, port in self.ports.items() if self.config.shown(name) != str(port)]
        fresh: list[list[socket.socket]] = []
        try:
            for directive in moved:
                fresh.append(self._opened(directive))
        except HeadraceError as wrong:
            for opened in fresh:
                close_all(opened)
            logging.getLogger("headrace").error("CONFIG SET %s: %s", directive, wrong)
            about_tls = isinstance(wrong, UsageError)
            raise set_failed(directive, str(wrong) if about_tls else NO_PORT) from None
        else:
            for directive, opened in zip(moved, fresh, strict=True):
                self._move(directive, opened)
        finally:
            if not self.tls_port:
                self.tls = None
        if moved:
            self._tell()
            where = ", ".join(self.names) or "nothing"
            logging.getLogger("headrace").log(NOTICE, "listening on %s from now on", where)
        return bool(moved)

    def _move(self, directive: str, listeners: list[socket.socket]) -> None:
        """Listen at these for a port's directive; which port that is."""
        self._put(directive, listeners)
        self.ports[directive] = port_of(listeners)
        self.config.adjust(directive, self.ports[directive])

    @property
    def port(self) -> int:
        """The TCP port without TLS; 0 for none."""
        return self.ports.get("port", 0)

    @property
    def tls_port(self) -> int:
        """The TCP port with TLS; 0 for none."""
        return self.ports.get("tls-port", 0)

    @property
    def names(self) -> list[str]:
        """Each address listened on, as a person would write it."""
        return [
            self.unix_path
            if directive == "unixsocket"
            else spelt(listener.getsockname()) + (" (TLS)" if directive == "tls-port" else "")
            for directive, listeners in self.sockets.items()
            for listener in listeners
        ]

    def _tell(self) -> None:
        """Have INFO tell of each kind of way in."""
        binds = "".join(f"bind={word}," for word in self.config.shown("bind").split())
        ways = [
            f"name={name},{binds}port={port}"
            for name, port in (("tcp", self.port), ("tls", self.tls_port))
            if port
        ]
        self.host.port = self.port or self.tls_port
        self.host.listening = [*ways, f"name=unix,bind={self.unix_path}"] if self.unix_path else ways

    def _opened(self, directive: str) -> list[socket.socket]:
        """Sockets that listen on the directive's port, one at each address. HeadraceError."""
        shown = self.config.shown(directive)
        if shown == "0":
            return []
        if directive == "tls-port" and self.tls is None:
            from headrace.server.loop.tls import Tls  # OpenSSL's megabyte is for those who use it

            self.tls = Tls(self.config, self.turn)
        port = 0 if shown == "free" else int(shown)
        opened: list[socket.socket] = []

        def listen(address: str) -> None:
            at = port_of(opened) if port == 0 else port
            opened.append(listening(address, at, self.config.number("tcp-backlog")))

        try:
            at_each_address(self.config, f"{directive} {port}", listen)
        except HeadraceError:
            close_all(opened)
            raise
        return opened

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
            listener.setblocking(False)
            listener.listen(self.config.number("tcp-backlog"))  # nobody can connect before
        except OSError as wrong:
            listener.close()
            raise HeadraceError(f"cannot listen on {path}: {wrong.strerror or wrong}") from None
        self.unix_path = path
        self._put("unixsocket", [listener])

    def _put(self, directive: str, listeners: list[socket.socket]) -> None:
        """Let clients in by these sockets, and no more by those of before."""
        for old in self.sockets.get(directive, []):
            self.turn.forget(old.fileno())
            old.close()
        self.sockets[directive] = listeners
        for listener in listeners:
            self.turn.listen(listener.fileno(), partial(self._accept, listener, directive == "tls-port"))

    def close(self) -> None:
        """Listen no more."""
        for directive in self.sockets:
            self._put(directive, [])
        if self.spare >= 0:
            os.close(self.spare)
        if self.unix_path:
            with suppress(OSError):
                os.unlink(self.unix_path)

    def _accept(self, listener: socket.socket, encrypted: bool) -> None:
        """Let in all who stand before the door."""
        if self.spare < 0:
            self.spare = spare_descriptor()
        for _ in range(ACCEPTS_MAX):
            try:
                client, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as wrong:
                if wrong.errno == errno.ECONNABORTED:
                    continue
                if wrong.errno in (errno.EMFILE, errno.ENFILE) and self._reject_or_pause(listener, encrypted):
                    continue
                if not self.stuck:  # once, not in every turn
                    logging.getLogger("headrace").warning("accepting a client: %s", wrong)
                self.stuck = True
                return
            self.stuck = False
            try:
                self._admit(client, address, encrypted)
            except OSError as wrong:  # it has gone already
                logging.getLogger("headrace").info("admitting a client: %s", wrong)
                client.close()

    def _reject_or_pause(self, listener: socket.socket, encrypted: bool) -> bool:
        """No descriptor is left: use the spare one to say so. Unaccepted it would wake us for ever.

        False when there is no spare one either: another process has taken the system's last.
        """
        if self.spare < 0:
            return False
        os.close(self.spare)
        try:
            client, _ = listener.accept()
            client.setblocking(False)
            refuse(client, TOO_MANY, encrypted)
            self.host.rejected += 1
        except OSError:
            pass
        self.spare = spare_descriptor()
        return self.spare >= 0

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
        self.turn.add(client.fileno(), name.encode(), local_name.encode(), secure)
        client.detach()

    def _is_protected(self) -> bool:
        """Whether only this machine's clients may come: whoever comes would need no password."""
        return self.config.flag("protected-mode") and self.turn.engine.auth.users.default.nopass

    def _tune(self, client: socket.socket) -> None:
        """Answers leave at once; a peer that has vanished is noticed."""
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds = min(self.config.number("tcp-keepalive"), KEEPALIVE_MAX_S)
        if seconds:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(seconds // 3, 1))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def listening(address: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens there; OSError when it cannot."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.setblocking(False)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def spare_descriptor() -> int:
    """A descriptor of no use; -1 when the system has none to give."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def port_of(listeners: list[socket.socket]) -> int:
    """The port that they share; 0 when there are none."""
    port: int = listeners[0].getsockname()[1] if listeners else 0
    return port


def close_all(listeners: list[socket.socket]) -> None:
    """Give these up."""
    for listener in listeners:
        listener.close()


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
