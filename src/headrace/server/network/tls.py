"""The TLS context: the server's certificate and the rules for clients' certificates, from tls-* directives.

Files are read when the tls-port is opened, and by each CONFIG SET that names one of the other directives,
even with its old value: the file may have changed. Connections keep the context that they began with. This
module is only loaded when there is a tls-port.
"""

from __future__ import annotations

import os
import ssl
from typing import Any

from headrace.errors import HeadraceError, UsageError
from headrace.server.config.config import Config, config_set_error
from headrace.server.loop.connection import Connection
from headrace.server.loop.event_loop import EventLoop
from headrace.server.loop.tls_connection import TlsConnection

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
VERIFY_MODES = {"yes": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "no": ssl.CERT_NONE}


class IncomingTls:
    """The context of new TLS connections."""

    def __init__(self, config: Config, loop: EventLoop) -> None:
        self.config = config
        self.loop = loop
        self.context = tls_context(config)

    def reloaded_context(self) -> ssl.SSLContext:
        """Return a new context if the running CONFIG SET names a tls-* directive, else the current one.

        Raises CommandError if the files or values cannot be used.
        """
        named = sorted(
            name for name in self.config.names_being_set if name.startswith("tls-") and name != "tls-port"
        )
        if not named:
            return self.context
        try:
            return tls_context(self.config)
        except HeadraceError as wrong:
            raise config_set_error(named[0], f"Unable to update TLS configuration: {wrong}") from None

    def new_connection(self) -> TlsConnection:
        """Return the server's end of a new TLS connection."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        encrypted = self.context.wrap_bio(incoming, outgoing, server_side=True)
        return TlsConnection(incoming, outgoing, encrypted, self.authenticate)

    def authenticate(self, connection: Connection) -> None:
        """Authenticate a client by its certificate, if tls-auth-clients-user says so."""
        tls = connection.tls
        if tls is not None and self.config.text("tls-auth-clients-user") == "CN":
            name = common_name(tls.ssl_object.getpeercert())
            if name:
                auth = self.loop.engine.auth
                auth.authenticate_by_certificate(connection.session, name.encode(), self.loop.clock.now_ms())


def tls_context(config: Config) -> ssl.SSLContext:
    """Return the context for the configuration. Raises UsageError naming the directive that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # OpenSSL sends two by default. Each costs a seventh of a handshake, because it decodes the client's
    # certificate again; a client can resume with the same one several times.
    context.num_tickets = 1
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
            raise UsageError(f"tls-ciphers {ciphers}: OpenSSL supports none of them") from None
    _load_certificate(config, context, "tls-port needs a tls-cert-file and a tls-key-file")
    _configure_client_certificates(config, context)
    return context


class OutgoingTls:
    """The context of connections that this server makes, to its primary."""

    would_block_errors = (ssl.SSLWantReadError, ssl.SSLWantWriteError)

    def __init__(self, config: Config) -> None:
        """Use the server's own certificate as the client's. Raises UsageError."""
        self.context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # as in Redis: what counts is who has signed the certificate
        if config.text("tls-cert-file"):
            _load_certificate(config, context, "tls-replication with a tls-cert-file needs a tls-key-file")
        if not _load_authorities(config, context):
            raise UsageError("tls-replication needs a tls-ca-cert-file or a tls-ca-cert-dir")


def _load_certificate(config: Config, context: ssl.SSLContext, missing: str) -> None:
    """Load the certificate and its key. Raises UsageError, with the text `missing` if one is not set."""
    certificate, key = _readable_path(config, "tls-cert-file"), _readable_path(config, "tls-key-file")
    if not certificate or not key:
        raise UsageError(missing)
    try:
        # Always given, or OpenSSL would prompt for it on the terminal.
        context.load_cert_chain(certificate, key, lambda: config.text("tls-key-file-pass"))
    except (ssl.SSLError, ValueError) as wrong:
        raise UsageError(
            f"tls-cert-file {certificate}, tls-key-file {key}: {_describe_error(wrong)}"
        ) from None
    if parameters := _readable_path(config, "tls-dh-params-file"):
        try:
            context.load_dh_params(parameters)
        except ssl.SSLError as wrong:
            raise UsageError(f"tls-dh-params-file {parameters}: {_describe_error(wrong)}") from None


def _load_authorities(config: Config, context: ssl.SSLContext) -> bool:
    """Load the authorities' certificates; return whether any are set. Raises UsageError."""
    file, directory = _readable_path(config, "tls-ca-cert-file"), config.text("tls-ca-cert-dir")
    if directory and not os.path.isdir(directory):
        raise UsageError(f"tls-ca-cert-dir {directory}: no such directory")
    if not file and not directory:
        return False
    try:
        context.load_verify_locations(file or None, directory or None)
    except ssl.SSLError as wrong:
        raise UsageError(f"tls-ca-cert-file {file}: {_describe_error(wrong)}") from None
    return True


def _configure_client_certificates(config: Config, context: ssl.SSLContext) -> None:
    asked = config.text("tls-auth-clients")
    if not _load_authorities(config, context) and asked != "no":
        raise UsageError(
            f"tls-auth-clients {asked}: needs a tls-ca-cert-file or a tls-ca-cert-dir to verify"
            " clients' certificates; with no, clients need none"
        )
    context.verify_mode = VERIFY_MODES[asked]


def _readable_path(config: Config, directive: str) -> str:
    """Return the path that a directive has, or "" if it is empty. Raises UsageError if it cannot be read."""
    path = config.text(directive)
    if path:
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as wrong:
            raise UsageError(f"{directive} {path}: {wrong.strerror}") from None
    return path


def _describe_error(wrong: Exception) -> str:
    """Return a text for an error in a file. OpenSSL reports a wrong password in many ways."""
    reason = getattr(wrong, "reason", None)
    if reason is None:
        return "it cannot be read; is it PEM, and does tls-key-file-pass fit?"
    return str(reason).replace("_", " ").lower()


def common_name(certificate: Any) -> str:
    """Return the common name in a client's certificate; empty if there is none."""
    subject = (certificate or {}).get("subject", ())
    return next((value for part in subject for name, value in part if name == "commonName"), "")
