"""Listening sockets: TCP addresses, with and without TLS, and a Unix socket; which clients are rejected."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, UsageError
from headrace.server.config.config import Config, config_set_error
from headrace.server.config.log_levels import NOTICE
from headrace.server.loop.event_loop import EventLoop
from headrace.server.network.addresses import for_each_address, format_address, is_loopback

if TYPE_CHECKING:
    from headrace.server.network.tls import IncomingTls

ACCEPTS_MAX = 1000  # in one turn
KEEPALIVE_MAX_S = 32767  # Linux refuses more
PORT_DIRECTIVES = ("port", "tls-port")

PORT_UNAVAILABLE_ERROR = "Unable to listen on this port. Check server logs."

TOO_MANY_CLIENTS_REPLY = b"-ERR max number of clients reached\r\n"
PROTECTED_MODE_REPLY = (
    b"-DENIED headrace accepts only clients on its own machine while its default user needs no password. To "
    b"accept others, set a password with --requirepass or ACL SETUSER; or, on a network you trust, use "
    b"--protected-mode no.\r\n"
)


class Listeners:
    """The listening sockets. An accepted client is passed to the event loop."""

    def __init__(self, config: Config, loop: EventLoop) -> None:
        self.config = config
        self.loop = loop
        self.sockets: dict[str, list[socket.socket]] = {}  # by directive
        self.ports: dict[str, int] = {}  # by directive; 0 for none
        self.tls: IncomingTls | None = None
        self.unix_path = ""
        self.rejected_client_count = 0  # clients
        self.accept_failed = False  # a client waits, but accept() fails
        # Closed for a moment when descriptors run out, so that the client can be accepted and told why.
        self.spare_fd = open_spare_descriptor()  # -1 for none

    def open(self) -> None:
        """Listen on all configured addresses. Raises HeadraceError if one is unavailable, or none is set."""
        for directive in PORT_DIRECTIVES:
            self._listen_at(directive, self._open_port(directive))
        path = self.config.text("unixsocket")
        if path:
            self._open_unix(path)
        if not any(self.sockets.values()):
            raise HeadraceError("nothing to listen on: give a --port, a --tls-port or a --unixsocket")

    def apply_ports(self) -> bool:
        """Listen on the ports that CONFIG SET has changed after open(); return whether any changed.

        Connected clients stay. Raises CommandError if a port is not available; then nothing has changed.
        """
        moved = [name for name, port in self.ports.items() if self.config.formatted_value(name) != str(port)]
        fresh: list[list[socket.socket]] = []
        try:
            for directive in moved:
                fresh.append(self._open_port(directive))
        except HeadraceError as wrong:
            for opened in fresh:
                close_all(opened)
            logging.getLogger("headrace").error("CONFIG SET %s: %s", directive, wrong)
            about_tls = isinstance(wrong, UsageError)
            raise config_set_error(directive, str(wrong) if about_tls else PORT_UNAVAILABLE_ERROR) from None
        else:
            for directive, opened in zip(moved, fresh, strict=True):
                self._listen_at(directive, opened)
        finally:
            if not self.tls_port:
                self.tls = None
        if moved:
            where = ", ".join(self.addresses) or "nothing"
            logging.getLogger("headrace").log(NOTICE, "now listening on %s", where)
        return bool(moved)

    def _listen_at(self, directive: str, listeners: list[socket.socket]) -> None:
        """Replace the sockets of a port directive, and record the actual port."""
        self._replace_listeners(directive, listeners)
        self.ports[directive] = port_of(listeners)
        self.config.override(directive, self.ports[directive])

    @property
    def port(self) -> int:
        """The TCP port without TLS; 0 for none."""
        return self.ports.get("port", 0)

    @property
    def tls_port(self) -> int:
        """The TCP port with TLS; 0 for none."""
        return self.ports.get("tls-port", 0)

    @property
    def announced_port(self) -> int:
        """The port to announce to clients and other servers: the one without TLS, if there is one."""
        return self.port or self.tls_port

    @property
    def addresses(self) -> list[str]:
        """The addresses listened on, as text for people."""
        return [
            self.unix_path
            if directive == "unixsocket"
            else format_address(listener.getsockname()) + (" (TLS)" if directive == "tls-port" else "")
            for directive, listeners in self.sockets.items()
            for listener in listeners
        ]

    def info(self) -> list[str]:
        """Return the value of an INFO field for each kind of listener: TCP, TLS, Unix socket."""
        binds = "".join(f"bind={word}," for word in self.config.formatted_value("bind").split())
        ways = [
            f"name={name},{binds}port={port}"
            for name, port in (("tcp", self.port), ("tls", self.tls_port))
            if port
        ]
        return [*ways, f"name=unix,bind={self.unix_path}"] if self.unix_path else ways

    def _open_port(self, directive: str) -> list[socket.socket]:
        """Return listening sockets for the directive's port, one per address. Raises HeadraceError."""
        shown = self.config.formatted_value(directive)
        if shown == "0":
            return []
        if directive == "tls-port" and self.tls is None:
            from headrace.server.network.tls import (
                IncomingTls,  # OpenSSL takes a megabyte: loaded only when used
            )

            self.tls = IncomingTls(self.config, self.loop)
        port = 0 if shown == "free" else int(shown)
        opened: list[socket.socket] = []

        def listen(address: str) -> None:
            at = port_of(opened) if port == 0 else port
            opened.append(open_listener(address, at, self.config.number("tcp-backlog")))

        try:
            for_each_address(self.config, f"{directive} {port}", listen)
        except HeadraceError:
            close_all(opened)
            raise
        return opened

    def _open_unix(self, path: str) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            clear_stale_socket(path)
            permissions = self.config.number("unixsocketperm")
            if permissions:  # the file is created with them, minus the umask
                os.fchmod(listener.fileno(), permissions)
            listener.bind(path)
            if permissions:
                os.chmod(path, permissions)
            listener.setblocking(False)
            listener.listen(self.config.number("tcp-backlog"))  # clients can connect from here on
        except OSError as wrong:
            listener.close()
            raise HeadraceError(f"cannot listen on {path}: {wrong.strerror or wrong}") from None
        self.unix_path = path
        self._replace_listeners("unixsocket", [listener])

    def _replace_listeners(self, directive: str, listeners: list[socket.socket]) -> None:
        """Accept clients from these sockets, and close the directive's earlier ones."""
        for old in self.sockets.get(directive, []):
            self.loop.remove_reader(old.fileno())
            old.close()
        self.sockets[directive] = listeners
        for listener in listeners:
            self.loop.add_listener(
                listener.fileno(), partial(self._accept, listener, directive == "tls-port")
            )

    def close(self) -> None:
        """Close all listening sockets."""
        for directive in self.sockets:
            self._replace_listeners(directive, [])
        if self.spare_fd >= 0:
            os.close(self.spare_fd)
        if self.unix_path:
            with suppress(OSError):
                os.unlink(self.unix_path)

    def _accept(self, listener: socket.socket, encrypted: bool) -> None:
        """Accept all waiting clients."""
        if self.spare_fd < 0:
            self.spare_fd = open_spare_descriptor()
        for _ in range(ACCEPTS_MAX):
            try:
                client, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as wrong:
                if wrong.errno == errno.ECONNABORTED:
                    continue
                if wrong.errno in (errno.EMFILE, errno.ENFILE) and self._reject_without_descriptor(
                    listener, encrypted
                ):
                    continue
                if not self.accept_failed:  # logged once, not in every turn
                    logging.getLogger("headrace").warning("accepting a client: %s", wrong)
                self.accept_failed = True
                return
            self.accept_failed = False
            try:
                self._admit(client, address, encrypted)
            except OSError as wrong:  # it has already disconnected
                logging.getLogger("headrace").info("admitting a client: %s", wrong)
                client.close()

    def _reject_without_descriptor(self, listener: socket.socket, encrypted: bool) -> bool:
        """Use the spare descriptor to reject a waiting client, which would otherwise wake every turn.

        Returns False if there is no spare descriptor any more: another process has taken the last one.
        """
        if self.spare_fd < 0:
            return False
        os.close(self.spare_fd)
        try:
            client, _ = listener.accept()
            client.setblocking(False)
            reject(client, TOO_MANY_CLIENTS_REPLY, encrypted)
            self.rejected_client_count += 1
        except OSError:
            pass
        self.spare_fd = open_spare_descriptor()
        return self.spare_fd >= 0

    def _admit(self, client: socket.socket, address: object, encrypted: bool) -> None:
        client.setblocking(False)
        if len(self.loop.connections) >= self.config.number("maxclients"):
            self.rejected_client_count += 1
            reject(client, TOO_MANY_CLIENTS_REPLY, encrypted)
            return
        if client.family == socket.AF_UNIX:
            name = local_name = f"{self.unix_path}:0"
        else:
            assert isinstance(address, tuple)
            if self._is_protected() and not is_loopback(address[0]):
                self.rejected_client_count += 1
                reject(client, PROTECTED_MODE_REPLY, encrypted)
                return
            name, local_name = format_address(address), format_address(client.getsockname())
            self._tune(client)
        tls = self.tls.new_connection() if encrypted and self.tls is not None else None
        self.loop.add_connection(client.fileno(), name.encode(), local_name.encode(), tls)
        client.detach()

    def _is_protected(self) -> bool:
        """Return whether only local clients may connect, because others would need no password."""
        return self.config.flag("protected-mode") and self.loop.engine.auth.users.default.nopass

    def _tune(self, client: socket.socket) -> None:
        """Send replies without delay, and detect peers that have vanished."""
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds = min(self.config.number("tcp-keepalive"), KEEPALIVE_MAX_S)
        if seconds:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(seconds // 3, 1))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def open_listener(address: str, port: int, backlog: int) -> socket.socket:
    """Return a listening socket. Raises OSError."""
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


def open_spare_descriptor() -> int:
    """Return an unused descriptor to reserve; -1 if the system has none left."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def port_of(listeners: list[socket.socket]) -> int:
    """Return the port that the sockets share; 0 if there are none."""
    port: int = listeners[0].getsockname()[1] if listeners else 0
    return port


def close_all(listeners: list[socket.socket]) -> None:
    """Close these sockets."""
    for listener in listeners:
        listener.close()


def reject(client: socket.socket, reason: bytes, encrypted: bool) -> None:
    """Send the reason if that does not block, and close the socket. TLS clients get none; it is logged."""
    with client, suppress(OSError):
        if encrypted:
            logging.getLogger("headrace").info("rejecting a TLS client: %s", reason[1:].decode().strip())
        else:
            client.send(reason)


def clear_stale_socket(path: str) -> None:
    """Remove the socket file of a dead server. Raises OSError if a server still accepts connections there."""
    if not Path(path).exists() or not stat.S_ISSOCK(os.stat(path).st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
