"""The server's certificate and what it asks of clients: from the tls-* directives to OpenSSL's context.

Read when the tls-port is opened and by each CONFIG SET that names one of the others, even with the value it
has: the file may be another. Connections keep what they began with. Only loaded when there is a tls-port.
"""

from __future__ import annotations

import os
import ssl
from typing import Any

from headrace.errors import HeadraceError, UsageError
from headrace.server.config.config import Config, set_failed
from headrace.server.loop.connection import Connection
from headrace.server.loop.event_loop import Turn
from headrace.server.loop.tls_connection import Secure

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
ASKED = {"yes": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "no": ssl.CERT_NONE}


class Tls:
    """What new connections begin with."""

    def __init__(self, config: Config, turn: Turn) -> None:
        self.config = config
        self.turn = turn
        self.context = context_of(config)
        turn.handshakes.introduce = self.introduce

    def renewed(self) -> ssl.SSLContext:
        """What the directives say now, their files read anew if CONFIG SET has just named one of them.

        CommandError when that cannot be used.
        """
        named = sorted(name for name in self.config.named if name.startswith("tls-") and name != "tls-port")
        if not named:
            return self.context
        try:
            return context_of(self.config)
        except HeadraceError as wrong:
            raise set_failed(named[0], f"Unable to update TLS configuration: {wrong}") from None

    def secured(self) -> Secure:
        """The server's end of a connection that has just come."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        return Secure(incoming, outgoing, self.context.wrap_bio(incoming, outgoing, server_side=True))

    def introduce(self, connection: Connection) -> None:
        """A client's handshake is over: perhaps its certificate says which user it is."""
        secure = connection.secure
        if secure is not None and self.config.text("tls-auth-clients-user") == "CN":
            name = common_name(secure.wire.getpeercert())
            if name:
                guard = self.turn.engine.auth
                guard.authenticate_by_certificate(connection.session, name.encode(), self.turn.clock.now_ms())


def context_of(config: Config) -> ssl.SSLContext:
    """What the configuration says; UsageError with the directive to blame."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if not config.flag("tls-prefer-server-ciphers"):
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    versions = config.values["tls-protocols"]
    assert isinstance(versions, list)
    if versions:
        chosen = [VERSIONS[word] for word in versions]
        context.minimum_version, context.maximum_version = min(chosen), max(chosen)
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ciphers := config.text("tls-ciphers"):
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise UsageError(f"tls-ciphers {ciphers}: OpenSSL knows none of them") from None
    _show_certificate(config, context)
    _ask_clients(config, context)
    return context


def _show_certificate(config: Config, context: ssl.SSLContext) -> None:
    certificate, key = _file(config, "tls-cert-file"), _file(config, "tls-key-file")
    if not certificate or not key:
        raise UsageError("tls-port needs a tls-cert-file and a tls-key-file")
    try:
        # Always given, or OpenSSL would ask the terminal.
        context.load_cert_chain(certificate, key, lambda: config.text("tls-key-file-pass"))
    except (ssl.SSLError, ValueError) as wrong:
        raise UsageError(f"tls-cert-file {certificate}, tls-key-file {key}: {_said(wrong)}") from None
    if parameters := _file(config, "tls-dh-params-file"):
        try:
            context.load_dh_params(parameters)
        except ssl.SSLError as wrong:
            raise UsageError(f"tls-dh-params-file {parameters}: {_said(wrong)}") from None


def _ask_clients(config: Config, context: ssl.SSLContext) -> None:
    asked = config.text("tls-auth-clients")
    file, directory = _file(config, "tls-ca-cert-file"), config.text("tls-ca-cert-dir")
    if directory and not os.path.isdir(directory):
        raise UsageError(f"tls-ca-cert-dir {directory}: no such directory")
    if file or directory:
        try:
            context.load_verify_locations(file or None, directory or None)
        except ssl.SSLError as wrong:
            raise UsageError(f"tls-ca-cert-file {file}: {_said(wrong)}") from None
    elif asked != "no":
        raise UsageError(
            f"tls-auth-clients {asked}: needs a tls-ca-cert-file or a tls-ca-cert-dir to judge clients'"
            " certificates by; say no to let clients in without one"
        )
    context.verify_mode = ASKED[asked]


def _file(config: Config, directive: str) -> str:
    """The path that it names, which can be read; empty when it names none."""
    path = config.text(directive)
    if path:
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as wrong:
            raise UsageError(f"{directive} {path}: {wrong.strerror}") from None
    return path


def _said(wrong: Exception) -> str:
    """What is wrong with a file. OpenSSL tells of a wrong password in many ways, mostly about padding."""
    reason = getattr(wrong, "reason", None)
    if reason is None:
        return "it cannot be read; is it PEM, and does tls-key-file-pass fit?"
    return str(reason).replace("_", " ").lower()


def common_name(certificate: Any) -> str:
    """Whom a client's certificate names; empty when there is none, or it names nobody."""
    subject = (certificate or {}).get("subject", ())
    return next((value for part in subject for name, value in part if name == "commonName"), "")
