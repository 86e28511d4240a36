"""Who gets in by the TLS port, what he must show, and what becomes of those who do not shake hands."""

from __future__ import annotations

import os
import random
import socket
import ssl
import stat
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

from headrace.errors import CommandError, HeadraceError
from headrace.server.loop import handshakes
from server.tls_clients import Town, Wire, by_hand
from support.waiting import wait_until

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def lines_of_log(folder: Path, text: str) -> int:
    """How many lines say so."""
    return (folder / "log").read_text().count(text)


# Beside redis-server.

CONVERSATION = [
    ("PING",),
    ("ECHO", bytes(range(256)) * 300),
    ("SET", "k", "v" * 70_000),
    ("GET", "k"),
    ("XADD", "s", "1-1", "item", "pear"),
    ("XADD", "s", "1-1", "item", "plum"),
    ("XRANGE", "s", "-", "+"),
    ("XGROUP", "CREATE", "s", "g", "0"),
    ("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">"),
    ("NOSUCH",),
    ("GET",),
    ("ACL", "WHOAMI"),
    ("CLIENT", "GETNAME"),
    ("DEL", "k", "s"),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_conversation_is_the_same_beside_redis_server(
    start_tls, dial_tls, redis_port: int, town: Town, version: str
):
    context = town.context()
    context.minimum_version = context.maximum_version = VERSIONS[version]
    ours = start_tls().connect_tls(context)
    assert isinstance(ours.sock, ssl.SSLSocket) and ours.sock.version() == version
    theirs = dial_tls(redis_port, context)
    for words in CONVERSATION:
        both = [client.request(*words) for client in (ours, theirs)]
        assert str(both[0]) == str(both[1]) if isinstance(both[0], CommandError) else both[0] == both[1]


def test_info_and_client_list_show_what_redis_server_shows(start_tls, dial_tls, redis_port: int, town: Town):
    server = start_tls()
    ours = server.connect_tls(town.context())
    theirs = dial_tls(redis_port, town.context())
    for client, port in ((ours, server.tls_port), (theirs, redis_port)):
        assert f"tcp_port:{port}\r\n" in client.request("INFO", "server").decode()
        assert f"laddr=127.0.0.1:{port} " in client.request("CLIENT", "LIST").decode()
        assert client.request("CONFIG", "GET", "tls-auth-clients") == [b"tls-auth-clients", b"yes"]
    names = [
        [p.partition("=")[0] for p in c.request("CLIENT", "INFO").decode().split()] for c in (ours, theirs)
    ]
    counted_since_8_2 = {"tot-net-in", "tot-net-out", "tot-cmds"}
    assert set(names[1]) - counted_since_8_2 <= set(names[0])


# Versions of TLS.


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_older_versions_are_refused(start_tls, town: Town, version: ssl.TLSVersion, tmp_path: Path):
    server = start_tls("--loglevel", "verbose", "--logfile", str(tmp_path / "log"))
    context = town.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        server.connect_tls(context)
    wait_until(lambda: lines_of_log(tmp_path, "TLS: unsupported protocol") == 1)
    assert server.connect_tls(town.context()).request("PING") == "PONG"


@pytest.mark.parametrize(("only", "other"), [("TLSv1.2", "TLSv1.3"), ("TLSv1.3", "TLSv1.2")])
def test_one_version_may_be_all(start_tls, town: Town, only: str, other: str):
    server = start_tls("--tls-protocols", only)
    client = server.connect_tls(town.context())
    assert isinstance(client.sock, ssl.SSLSocket) and client.sock.version() == only
    context = town.context()
    context.minimum_version = context.maximum_version = VERSIONS[other]
    with pytest.raises(ssl.SSLError):
        server.connect_tls(context)


def test_ciphers_may_be_chosen(start_tls, town: Town):
    server = start_tls("--tls-protocols", "TLSv1.2", "--tls-ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384")
    client = server.connect_tls(town.context())
    assert isinstance(client.sock, ssl.SSLSocket)
    assert client.sock.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)


def test_a_handshake_is_had_once(start_tls, town: Town):
    """A second one on the same connection, which TLSv1.2 knows, would cost as much as the first."""
    server = start_tls()
    words = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.tls_port}", "-tls1_2"]
    words += ["-CAfile", str(town.authority.file), "-cert", str(town.ann.file), "-key", str(town.ann.key)]
    done = subprocess.run(words, input=b"R\n", capture_output=True, timeout=30)
    assert b"RENEGOTIATING" in done.stdout + done.stderr
    assert b"no renegotiation" in done.stderr
    wait_until(lambda: not server.server.parts.loop.connections)


def test_a_client_gets_one_ticket_and_can_resume_with_it(start_tls, town: Town):
    server = start_tls()
    words = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.tls_port}", "-tls1_3", "-ign_eof"]
    words += ["-CAfile", str(town.authority.file), "-cert", str(town.ann.file), "-key", str(town.ann.key)]
    done = subprocess.run(words, input=b"QUIT\r\n", capture_output=True, timeout=30)
    assert done.stdout.count(b"New Session Ticket arrived") == 1
    context = town.context()
    first = server.connect_tls(context)
    assert first.request("PING") == "PONG"
    assert isinstance(first.sock, ssl.SSLSocket)
    for _ in range(2):
        sock = socket.create_connection(("127.0.0.1", server.tls_port), 30)
        with context.wrap_socket(sock, server_hostname="127.0.0.1", session=first.sock.session) as again:
            assert again.session_reused


# Clients' certificates.


def test_without_a_certificate_nobody_gets_in(start_tls, town: Town):
    server = start_tls()
    for context in (town.nameless(), town.context(town.mallory)):
        client = server.connect_tls(context)  # in TLSv1.3 the client has done its part before it is refused
        with pytest.raises(ssl.SSLError, match=r"CERTIFICATE_REQUIRED|UNKNOWN_CA"):
            client.request("PING")
    assert server.connect_tls(town.context()).request("PING") == "PONG"
    assert server.server.parts.engine.stats.command_count == 1


def test_certificates_may_be_optional(start_tls, town: Town):
    server = start_tls("--tls-auth-clients", "optional")
    assert server.connect_tls(town.nameless()).request("PING") == "PONG"
    assert server.connect_tls(town.context()).request("PING") == "PONG"
    with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
        server.connect_tls(town.context(town.mallory)).request("PING")


def test_certificates_need_not_be_asked_for(start, town: Town):
    words = ["--tls-port", "free", *town.server.server_words(), "--tls-auth-clients", "no"]
    server = start(*words)
    for context in (town.nameless(), town.context(town.mallory)):
        assert server.connect_tls(context).request("PING") == "PONG"
    assert server.connect().request("PING") == "PONG"


def test_a_directory_of_authorities(start, town: Town, tmp_path: Path):
    folder = tmp_path / "authorities"
    folder.mkdir()
    (folder / "one.pem").write_bytes(town.authority.file.read_bytes())
    subprocess.run(["openssl", "rehash", str(folder)], check=True, capture_output=True)
    server = start("--tls-port", "free", *town.server.server_words(), "--tls-ca-cert-dir", str(folder))
    assert server.connect_tls(town.context()).request("PING") == "PONG"
    with pytest.raises(ssl.SSLError):
        server.connect_tls(town.nameless()).request("PING")


def test_a_client_may_be_whom_his_certificate_names(start_tls, town: Town):
    server = start_tls(
        "--tls-auth-clients",
        "optional",
        "--tls-auth-clients-user",
        "CN",
        "--user",
        "ann",
        "on",
        "+@all",
        "~a*",
    )
    ann, somebody = server.connect_tls(town.context()), server.connect_tls(town.nameless())
    assert ann.request("ACL", "WHOAMI") == b"ann"
    assert ann.request("SET", "apple", "1") == "OK"
    assert str(ann.request("SET", "pear", "1")).startswith("NOPERM")
    assert somebody.request("ACL", "WHOAMI") == b"default"
    assert server.connect_tls(town.context(town.server)).request("ACL", "WHOAMI") == b"default"
    log = somebody.request("ACL", "LOG")[0]
    assert log[log.index(b"reason") + 1] == b"tls-cert" and log[log.index(b"username") + 1] == b"server"
    assert b"acl_access_denied_tls_cert:1\r\n" in somebody.request("INFO", "stats")


def test_whom_a_certificate_names_needs_no_password_and_the_others_do(start_tls, town: Town):
    words = ["--tls-auth-clients-user", "CN", "--requirepass", "secret", "--user", "ann", "on", "+@all", "~*"]
    server = start_tls(*words)
    assert server.connect_tls(town.context()).request("ACL", "WHOAMI") == b"ann"
    stranger = server.connect_tls(town.context(town.server))
    assert str(stranger.request("PING")).startswith("NOAUTH")
    assert server.connect_tls(town.context()).request("ACL", "SETUSER", "ann", "off") == "OK"
    assert str(server.connect_tls(town.context()).request("PING")).startswith("NOAUTH")


# Those who do not speak TLS, and those who stall.


def test_who_speaks_plainly_to_the_port_is_closed(start_tls, dial, town: Town, tmp_path: Path):
    server = start_tls("--loglevel", "verbose", "--logfile", str(tmp_path / "log"))
    plain = dial(server.tls_port)
    plain.send(b"PING\r\n")
    answer = plain.sock.recv(100)  # an alert, for whoever understands it
    assert answer == b"" or (answer[:1] == b"\x15" and plain.is_closed())
    wait_until(lambda: not server.server.parts.loop.connections)
    assert lines_of_log(tmp_path, "TLS: wrong version number") == 1
    assert server.connect_tls(town.context()).request("PING") == "PONG"


def test_who_speaks_tls_to_the_plain_port_is_closed(start, town: Town, tmp_path: Path):
    server = start("--loglevel", "verbose", "--logfile", str(tmp_path / "log"))
    sock = socket.create_connection(("127.0.0.1", server.port), 30)
    with sock, pytest.raises(ssl.SSLError, match="WRONG_VERSION_NUMBER"):
        town.context().wrap_socket(sock, server_hostname="127.0.0.1")
    wait_until(lambda: not server.server.parts.loop.connections)
    assert lines_of_log(tmp_path, "does not speak TLS") == 1


def test_a_handshake_that_stalls_ends(start_tls, dial, town: Town, monkeypatch: pytest.MonkeyPatch):
    server = start_tls()
    hello = Wire(server.tls_port, town.context())
    with pytest.raises(ssl.SSLWantReadError):
        hello.wire.do_handshake()
    hello.sock.sendall(hello.outgoing.read()[:100])
    silent = dial(server.tls_port)
    guest = server.connect_tls(town.context())
    assert guest.request("PING") == "PONG"
    assert len(server.server.parts.loop.handshakes.in_progress) == 2
    monkeypatch.setattr(handshakes, "SECONDS_MAX", 0)
    assert hello.sock.recv(1) == b"" and silent.is_closed()
    assert guest.request("PING") == "PONG"
    assert not server.server.parts.loop.handshakes.in_progress
    hello.close()


def test_an_endless_hello_is_not_kept(start_tls, dial):
    """Records that promise a hello of sixteen megabytes: OpenSSL takes no such thing."""
    server = start_tls()
    rude = dial(server.tls_port)
    first = b"\x01\xff\xff\xff" + b"x" * 16_000
    rude.send(b"\x16\x03\x01" + len(first).to_bytes(2, "big") + first)
    assert rude.sock.recv(100)[:1] == b"\x15" and rude.is_closed()
    wait_until(lambda: not server.server.parts.loop.connections)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes with some changed, some left out and some put in."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(made) + 1)
        what = chance.randrange(3)
        if what == 0:
            made[at : at + 1] = chance.randbytes(1)
        elif what == 1:
            del made[at : at + chance.randrange(20)]
        else:
            made[at:at] = chance.randbytes(chance.randrange(20))
    return bytes(made)


def test_spoilt_hellos_and_records_harm_nobody(start_tls, town: Town):
    server = start_tls()
    guest = server.connect_tls(town.context())
    chance = random.Random(8446)
    for loop in range(100):
        rude = Wire(server.tls_port, town.context())
        if loop % 2:
            rude.shake()
            data = (
                b"".join(rude.record(b"PING\r\n" * chance.randint(1, 300)) for _ in range(3))
                + rude.close_notify()
            )
        else:
            with pytest.raises(ssl.SSLWantReadError):
                rude.wire.do_handshake()
            data = rude.outgoing.read()
        with suppress(ConnectionError):
            rude.sock.sendall(mutated(data, chance))
            rude.sock.shutdown(socket.SHUT_WR)
            while rude.sock.recv(1 << 16):
                pass  # until the server closes it
        rude.close()
    assert guest.request("PING") == "PONG"
    wait_until(lambda: len(server.server.parts.loop.connections) == 1)


def test_many_handshakes_at_once_come_to_an_end(start_tls, town: Town):
    server = start_tls()
    guest = server.connect_tls(town.context())
    wires = [Wire(server.tls_port, town.context()) for _ in range(40)]
    for wire in wires:  # all have sent their first word before any goes on
        with pytest.raises(ssl.SSLWantReadError):
            wire.wire.do_handshake()
        wire.sock.sendall(wire.outgoing.read())
    assert guest.request("PING") == "PONG"
    for wire in wires:
        wire.shake()
        wire.sock.sendall(wire.record(b"PING\r\n"))
        assert wire.read(7) == b"+PONG\r\n"
        wire.close()


def test_a_turn_takes_a_few_steps_of_handshakes_and_no_more(town: Town, tmp_path: Path):
    with by_hand(tmp_path, *town.server_words()) as server:
        loop = server.parts.loop
        wires = [Wire(server.parts.listeners.tls_port, town.context()) for _ in range(20)]
        for wire in wires:
            with pytest.raises(ssl.SSLWantReadError):
                wire.wire.do_handshake()
            wire.sock.sendall(wire.outgoing.read())
        steps = []
        while sum(steps) < len(wires):
            loop.run_once(1000)
            steps.append(loop.handshakes.steps_in_turn)
        assert len(loop.handshakes.in_progress) == len(wires)
        assert 0 < max(steps) < len(wires) / 2
        assert all(wire.sock.recv(1) == b"\x16" for wire in wires)
        for wire in wires:
            wire.close()


def test_a_request_by_tls_calls_no_functions_of_the_ssl_module(town: Town, tmp_path: Path):
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == ssl.__file__:
            called.append(frame.f_code.co_name)

    with by_hand(tmp_path, *town.server_words()) as server:
        wire = Wire(server.parts.listeners.tls_port, town.context())
        shaking = threading.Thread(target=wire.shake)
        shaking.start()
        while shaking.is_alive() or server.parts.loop.handshakes.in_progress:  # the client's part ends first
            server.parts.loop.run_once(10)
        for size in (10, 5_000):
            wire.sock.sendall(wire.record(b"ECHO " + b"x" * size + b"\r\n"))
            sys.setprofile(note)
            try:
                for _ in range(3):
                    server.parts.loop.run_once(10)
            finally:
                sys.setprofile(None)
            expected = b"$%d\r\n%s\r\n" % (size, b"x" * size)
            assert wire.read(len(expected)) == expected
        wire.close()
    assert called == []


def test_one_client_too_many_is_closed(start_tls, dial, town: Town, tmp_path: Path):
    server = start_tls("--maxclients", "1", "--loglevel", "verbose", "--logfile", str(tmp_path / "log"))
    guest = server.connect_tls(town.context())
    assert guest.request("PING") == "PONG"
    assert dial(server.tls_port).is_closed()
    assert lines_of_log(tmp_path, "rejecting a TLS client: ERR max number of clients") == 1
    assert b"rejected_connections:1" in guest.request("INFO", "stats")


# The Unix socket.


def test_nobody_connects_before_the_permissions_are_right(
    start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "headrace.sock"
    born: list[int] = []
    chmod = os.chmod

    def look(name: str, mode: int) -> None:
        born.append(stat.S_IMODE(os.stat(name).st_mode))
        with socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
            early.connect(name)
        chmod(name, mode)

    monkeypatch.setattr("headrace.server.network.listeners.os.chmod", look)
    before = os.umask(0)
    try:
        start("--unixsocket", str(path), "--unixsocketperm", "700")
    finally:
        os.umask(before)
    assert born == [0o700]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700


def test_nothing_to_listen_on_names_the_ways(start):
    with pytest.raises(HeadraceError, match="--tls-port"):
        start("--port", "0")
