"""The tls-* directives: what they refuse, and how certificates are changed while the server runs."""

from __future__ import annotations

import shutil
import socket
import ssl
from pathlib import Path

import pytest

from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.server.config.config import Config
from server.tls_clients import Town
from support.certificates import NEW_RSA_KEY, openssl


def shown_by(client) -> str:
    """The common name of the server's certificate, as that client has seen it."""
    assert isinstance(client.sock, ssl.SSLSocket)
    subject = client.sock.getpeercert()["subject"]
    return next(value for part in subject for name, value in part if name == "commonName")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--tls-cert-file", "nowhere.pem"], "tls-cert-file nowhere.pem: No such file or directory"),
        (["--tls-cert-file", "."], "tls-cert-file .: Is a directory"),
        (["--tls-key-file", ""], "tls-port needs a tls-cert-file and a tls-key-file"),
        (["--tls-key-file", "{ann.key}"], "key values mismatch"),
        (["--tls-cert-file", "{ann.key}"], "is it PEM, and does tls-key-file-pass fit?"),
        (["--tls-ca-cert-file", ""], "tls-auth-clients yes: needs a tls-ca-cert-file or a tls-ca-cert-dir"),
        (["--tls-ca-cert-file", "{ann.key}"], "no certificate or crl found"),
        (["--tls-ca-cert-dir", "nowhere"], "tls-ca-cert-dir nowhere: no such directory"),
        (["--tls-dh-params-file", "{ann.key}"], "tls-dh-params-file"),
        (["--tls-ciphers", "NOSUCH"], "tls-ciphers NOSUCH: OpenSSL supports none of them"),
    ],
)
def test_no_start_with_what_cannot_be(start_tls, town: Town, words: list[str], text: str):
    with pytest.raises(HeadraceError) as refused:
        start_tls(*(word.format(ann=town.ann) for word in words))
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--tls-protocols", "TLSv1.1 TLSv1.2"],
            "tlsv1.1 is insecure and not supported; the oldest version is TLSv1.2",
        ),
        (["--tls-protocols", "TLSv2"], "tlsv2 is not a TLS version"),
        (["--tls-ciphersuites", "TLS_AES_128_GCM_SHA256"], "Python's ssl cannot choose among them"),
        (["--tls-auth-clients", "perhaps"], "must be one of the following: yes, optional, no"),
        (["--tls-port", "65536"], "must be between 0 and 65535"),
    ],
)
def test_values_that_are_refused_when_they_are_read(words: list[str], text: str):
    with pytest.raises(UsageError) as refused:
        Config().read_arguments(words)
    assert text in str(refused.value)


def test_defaults_are_those_of_redis():
    config = Config()
    names = [
        b"tls-port",
        b"tls-auth-clients",
        b"tls-protocols",
        b"tls-prefer-server-ciphers",
        b"tls-cert-file",
    ]
    assert dict(config.get(names)) == dict(zip(names, [b"0", b"yes", b"", b"no", b""], strict=True))
    config.read_arguments(["--tls-session-caching", "no", "--tls-session-cache-size", "5000"])
    assert len(config.warnings) == 2


def test_without_a_port_nothing_is_read(start):
    assert start("--tls-cert-file", "nowhere.pem").connect().request("PING") == "PONG"


def test_a_password_opens_the_key(start_tls, town: Town, tmp_path: Path):
    locked = tmp_path / "locked.key"
    openssl("ec", "-in", town.server.key, "-aes256", "-passout", "pass:sesame", "-out", locked)
    words = ["--tls-key-file", str(locked)]
    for wrong in ([], ["--tls-key-file-pass", "wrong"]):
        with pytest.raises(HeadraceError, match="does tls-key-file-pass fit"):
            start_tls(*words, *wrong)
    server = start_tls(*words, "--tls-key-file-pass", "sesame")
    assert server.connect_tls(town.context()).request("PING") == "PONG"


def test_parameters_for_dhe(start_tls, town: Town, tmp_path: Path):
    parameters = tmp_path / "dh.pem"
    openssl("genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:ffdhe2048", "-out", parameters)
    shown = town.authority.certify("rsa", NEW_RSA_KEY)
    server = start_tls(*shown.server_words(), "--tls-ciphers", "DHE", "--tls-protocols", "TLSv1.2")
    with pytest.raises(ssl.SSLError):
        server.connect_tls(town.context())
    server = start_tls(*shown.server_words(), "--tls-ciphers", "DHE", "--tls-dh-params-file", str(parameters))
    context = town.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert server.connect_tls(context).sock.cipher()[0].startswith("DHE-RSA")


def test_a_new_certificate_is_shown_to_new_connections(start_tls, town: Town):
    server = start_tls()
    old = server.connect_tls(town.context())
    pairs = ["tls-cert-file", str(town.ann.file), "tls-key-file", str(town.ann.key)]
    assert old.request("CONFIG", "SET", *pairs) == "OK"
    new = server.connect_tls(town.context())
    assert (shown_by(old), shown_by(new)) == ("server", "ann")
    assert (old.request("PING"), new.request("PING")) == ("PONG", "PONG")


def test_the_same_name_again_reads_the_file_anew(start_tls, town: Town, tmp_path: Path):
    own, key = tmp_path / "own.pem", tmp_path / "own.key"
    shutil.copy(town.server.file, own)
    shutil.copy(town.server.key, key)
    server = start_tls("--tls-cert-file", str(own), "--tls-key-file", str(key))
    client = server.connect_tls(town.context())
    shutil.copy(town.ann.file, own)
    shutil.copy(town.ann.key, key)
    assert shown_by(server.connect_tls(town.context())) == "server"
    assert client.request("CONFIG", "SET", "tls-cert-file", str(own)) == "OK"
    assert shown_by(server.connect_tls(town.context())) == "ann"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("tls-cert-file", "nowhere.pem", "tls-cert-file nowhere.pem: No such file or directory"),
        ("tls-cert-file", "{ann.file}", "key values mismatch"),
        ("tls-ca-cert-file", "", "needs a tls-ca-cert-file or a tls-ca-cert-dir"),
        ("tls-ciphers", "NOSUCH", "OpenSSL supports none of them"),
    ],
)
def test_what_cannot_be_leaves_all_as_it_was(start_tls, town: Town, name: str, value: str, why: str):
    server = start_tls()
    client = server.connect_tls(town.context())
    before = client.request("CONFIG", "GET", "*")
    refused = client.request("CONFIG", "SET", "timeout", "77", name, value.format(ann=town.ann))
    assert isinstance(refused, CommandError)
    assert str(refused).startswith(f"ERR CONFIG SET failed (possibly related to argument '{name}') - ")
    assert why in str(refused)
    assert client.request("CONFIG", "GET", "*") == before
    new = server.connect_tls(town.context())
    assert new.request("PING") == "PONG" and shown_by(new) == "server"


def test_a_file_that_went_bad_does_not_matter_until_it_is_named(start_tls, town: Town, tmp_path: Path):
    own = tmp_path / "own.pem"
    shutil.copy(town.server.file, own)
    server = start_tls("--tls-cert-file", str(own))
    client = server.connect_tls(town.context())
    own.write_text("nothing\n")
    assert client.request("CONFIG", "SET", "timeout", "0") == "OK"
    assert isinstance(client.request("CONFIG", "SET", "tls-auth-clients", "no"), CommandError)
    assert server.connect_tls(town.context()).request("CONFIG", "GET", "tls-auth-clients")[1] == b"yes"


def test_a_session_of_before_opens_no_door_that_was_shut(start_tls, town: Town):
    """A ticket spares a client the showing of its certificate: as long as the same authorities judge."""
    server = start_tls()
    context = town.context()
    first = server.connect_tls(context)
    assert first.request("PING") == "PONG"

    def ask(sock: ssl.SSLSocket) -> bytes:
        sock.sendall(b"PING\r\n")
        return sock.recv(10)

    def again():
        sock = socket.create_connection(("127.0.0.1", server.tls_port), 30)
        return context.wrap_socket(sock, server_hostname="127.0.0.1", session=first.sock.session)

    with again() as sock:
        assert ask(sock) == b"+PONG\r\n" and sock.session_reused
    assert first.request("CONFIG", "SET", "tls-ca-cert-file", str(town.others.file)) == "OK"
    with again() as sock, pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
        ask(sock)


def test_whether_clients_are_asked_may_change(start_tls, town: Town):
    server = start_tls()
    client = server.connect_tls(town.context())
    assert client.request("CONFIG", "SET", "tls-auth-clients", "no") == "OK"
    assert server.connect_tls(town.nameless()).request("PING") == "PONG"
    assert client.request("CONFIG", "SET", "tls-auth-clients", "yes") == "OK"
    with pytest.raises(ssl.SSLError):
        server.connect_tls(town.nameless()).request("PING")


def test_the_password_is_shown_to_nobody_but_config_get(start_tls, town: Town):
    config = Config()
    with pytest.raises(UsageError) as refused:
        config.read_arguments(["--tls-key-file-pass", "sesame", "street"])
    assert "sesame" not in str(refused.value)
