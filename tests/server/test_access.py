"""Users over sockets: who must say who he is, what becomes of connections, files of users."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pytest
from redis.lock import Lock

from headrace.commands.table import COMMANDS
from headrace.errors import CommandError, HeadraceError
from headrace.server.config.config import Config
from headrace.server.main import Server

STRANGERS_MAY = {b"auth", b"hello", b"quit", b"reset"}


def refused(client, *words) -> str:
    """The text of the refusal."""
    reply = client.request(*words)
    assert isinstance(reply, CommandError), (words, reply)
    return str(reply)


def test_a_stranger_can_do_nothing_but_say_who_he_is(start):
    server = start("--requirepass", "open sesame")
    client = server.connect()
    for command in COMMANDS:
        for row in [command, *command.unique_subcommands()]:
            if row.name in STRANGERS_MAY or (row.run is None and row.subcommands):
                continue
            words = row.name.split(b"|")
            words += [b"1"] * (abs(row.arity) - len(words))
            said = refused(client, *words).removeprefix("EXECABORT Transaction discarded because of: ")
            assert said == "NOAUTH Authentication required.", row.name
    assert refused(client, "HELLO", "3").startswith("NOAUTH HELLO must be called")
    assert refused(client, "AUTH", "wrong").startswith("WRONGPASS")
    assert client.request("AUTH", "open sesame") == "OK"
    assert client.request("ACL", "WHOAMI") == b"default"
    assert client.request("RESET") == "RESET"
    assert refused(client, "GET", "a").startswith("NOAUTH")
    assert client.request("HELLO", "2", "AUTH", "default", "open sesame")
    assert client.request("CONFIG", "SET", "requirepass", "") == "OK"
    assert server.connect().request("PING") == "PONG"


def test_passwords_are_neither_kept_nor_shown(start):
    server = start()
    client = server.connect()
    client.request("ACL", "SETUSER", "ann", "on", ">secret", "~a*", "+get")
    digest = hashlib.sha256(b"secret").hexdigest().encode()
    assert b"user ann on #" + digest + b" ~a* resetchannels -@all +get" in client.request("ACL", "LIST")
    user = server.server.parts.engine.auth.users.find(b"ann")
    assert list(user.passwords) == [digest]


def test_what_a_user_may_not_do_is_refused_and_logged(start):
    server = start()
    admin, ann = server.connect(), server.connect()
    admin.request("ACL", "SETUSER", "ann", "on", ">secret", "~a*", "+@read", "+set", "&news", "+@pubsub")
    assert ann.request("AUTH", "ann", "secret") == "OK"
    assert ann.request("SET", "a1", "v") == "OK"
    assert refused(ann, "SET", "b1", "v") == "NOPERM No permissions to access a key"
    assert refused(ann, "SET", "b1", "v") == "NOPERM No permissions to access a key"
    assert refused(ann, "DEL", "a1") == "NOPERM User ann has no permissions to run the 'del' command"
    assert refused(ann, "PUBLISH", "olds", "x") == "NOPERM No permissions to access a channel"
    log = [dict(zip(one[::2], one[1::2], strict=True)) for one in admin.request("ACL", "LOG")]
    seen = [(one[b"reason"], one[b"object"], one[b"count"], one[b"username"]) for one in log]
    assert seen == [
        (b"channel", b"olds", 1, b"ann"),
        (b"command", b"del", 1, b"ann"),
        (b"key", b"b1", 2, b"ann"),
    ]
    assert b"acl_access_denied_key:2\r\n" in admin.request("INFO", "stats")
    assert b" user=ann " in log[0][b"client-info"]
    admin.request("CONFIG", "SET", "acllog-max-len", "1")
    assert len(admin.request("ACL", "LOG")) == 1


def test_exec_asks_again(start):
    server = start()
    admin, ann = server.connect(), server.connect()
    admin.request("ACL", "SETUSER", "ann", "on", "nopass", "~*", "+@all")
    ann.request("AUTH", "ann", "")
    for words in (["MULTI"], ["SET", "a", "1"], ["GET", "a"]):
        ann.request(*words)
    admin.request("ACL", "SETUSER", "ann", "-set", "%R~a")
    admin.request("ACL", "SETUSER", "ann", "resetkeys", "%R~a")
    first, second = ann.request("EXEC")
    assert str(first).startswith("NOPERM ACLs rules changed between the moment")
    assert second is None
    ann.request("MULTI")
    assert refused(ann, "SET", "a", "1").startswith("NOPERM")
    assert refused(ann, "EXEC").startswith("EXECABORT")


def test_who_waits_is_asked_again_when_served(start):
    server = start()
    admin, ann = server.connect(), server.connect()
    admin.request("ACL", "SETUSER", "ann", "on", "nopass", "~s*", "+@all")
    ann.request("AUTH", "ann", "")
    ann.send(b"XREAD BLOCK 0 STREAMS s1 $\r\n")
    while b"flags=b" not in admin.request("CLIENT", "LIST"):
        pass
    admin.request("ACL", "SETUSER", "ann", "resetkeys", "~t*")
    admin.request("XADD", "s1", "*", "f", "v")
    assert str(ann.reply()) == "NOPERM No permissions to access a key"
    assert ann.request("XLEN", "t") == 0


@pytest.mark.parametrize("password", ["", "secret"])
@pytest.mark.parametrize(
    "request_of_a_page",
    [
        b"POST / HTTP/1.1\r\nSET pears 7\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost:7777\r\nSET pears 7\r\n",
        b"post\r\nSET pears 7\r\n",
        b"*2\r\n$5\r\nhOST:\r\n$1\r\nx\r\nSET pears 7\r\n",
        b"MULTI\r\nSET pears 7\r\nPOST /\r\nEXEC\r\n",
        b"CLIENT REPLY OFF\r\nPOST /\r\nSET pears 7\r\n",
    ],
)
def test_a_page_in_a_browser_reaches_nothing(start, password: str, request_of_a_page: bytes):
    """redis-server closes such connections, too."""
    server = start("--requirepass", password)
    page = server.connect()
    page.send(request_of_a_page)
    with suppress(EOFError, ConnectionError):
        while True:
            page.reply()
    client = server.connect()
    if password:
        client.request("AUTH", password)
    assert client.request("EXISTS", "pears") == 0
    assert client.request("POST/") is not None and client.request("PING") == "PONG"


def test_connections_of_removed_users_are_closed(start):
    server = start()
    admin, ann, listener = server.connect(), server.connect(), server.connect()
    admin.request("ACL", "SETUSER", "ann", "on", "nopass", "~*", "&*", "+@all")
    ann.request("AUTH", "ann", "")
    listener.request("AUTH", "ann", "")
    listener.request("SUBSCRIBE", "news")
    admin.request("ACL", "SETUSER", "ann", "resetchannels", "&olds")
    assert listener.is_closed()
    assert ann.request("PING") == "PONG"
    assert admin.request("ACL", "DELUSER", "ann", "nobody") == 1
    assert ann.is_closed()
    assert refused(server.connect(), "AUTH", "ann", "").startswith("WRONGPASS")


def test_who_is_switched_off_stays_but_does_not_come_again(start):
    server = start()
    admin, ann = server.connect(), server.connect()
    admin.request("ACL", "SETUSER", "ann", "on", "nopass", "+ping")
    ann.request("AUTH", "ann", "")
    admin.request("ACL", "SETUSER", "ann", "off")
    assert ann.request("PING") == "PONG"
    assert refused(ann, "AUTH", "ann", "").startswith("WRONGPASS")
    admin.request("ACL", "SETUSER", "default", "off")
    assert admin.request("PING") == "PONG"
    assert refused(server.connect(), "PING").startswith("NOAUTH")


def test_a_script_does_only_what_the_user_may(start):
    release = Lock.LUA_RELEASE_SCRIPT
    server = start()
    admin, ann = server.connect(), server.connect()
    admin.request("ACL", "SETUSER", "ann", "on", "nopass", "~lock", "+eval", "+get", "+set")
    ann.request("AUTH", "ann", "")
    ann.request("SET", "lock", "t")
    assert "'del' command" in refused(ann, "EVAL", release, "1", "lock", "t")
    admin.request("ACL", "SETUSER", "ann", "+del")
    assert ann.request("EVAL", release, "1", "lock", "t") == 1


def test_users_are_read_from_a_file_and_written_to_it(start, tmp_path):
    file = tmp_path / "users.acl"
    file.write_text("user ann on nopass ~a* +get\n\nuser default on nopass ~* &* +@all\n")
    server = start("--dir", str(tmp_path), "--aclfile", "users.acl")
    admin, ann = server.connect(), server.connect()
    assert admin.request("ACL", "USERS") == [b"ann", b"default"]
    ann.request("AUTH", "ann", "")
    admin.request("ACL", "SETUSER", "bob", ">secret")
    assert admin.request("ACL", "SAVE") == "OK"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in file.read_text()
    lines = admin.request("ACL", "LIST")
    admin.request("ACL", "SETUSER", "bob", "reset", "+@all")
    assert admin.request("ACL", "LOAD") == "OK"
    assert admin.request("ACL", "LIST") == lines
    assert refused(ann, "GET", "b") == "NOPERM No permissions to access a key"
    file.write_text("user ann on\nuser ann on\nuser bob +nothing\n")
    text = refused(admin, "ACL", "LOAD")
    assert "users.acl:2: Duplicate user" in text and "users.acl:3: Error in applying" in text
    assert admin.request("ACL", "LIST") == lines
    file.write_text("user bob on\nbob on\n")
    assert "users.acl:2: should start with user keyword" in refused(admin, "ACL", "LOAD")
    file.write_text("user bob on\n")
    assert admin.request("ACL", "LOAD") == "OK"
    assert ann.is_closed()
    assert refused(server.connect(), "AUTH", "ann", "").startswith("WRONGPASS")


def test_users_in_the_configuration(start):
    ann = ["--user", "ann", "on", ">pw", "~a*", "(+get", "~b)"]
    server = start(*ann, "--user", "bob", "on", "nopass", "+@all", "--requirepass", "s t")
    client = server.connect()
    assert refused(client, "PING").startswith("NOAUTH")
    assert client.request("AUTH", "s t") == "OK"
    assert client.request("ACL", "USERS") == [b"ann", b"bob", b"default"]
    assert client.request("CONFIG", "GET", "user") == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--user", "ann", "+nothing"], "Unknown command or category"),
        (["--user", "ann", "on", "--user", "ann", "on"], "Duplicate user"),
        (["--user", "ann", "(+get"], "Unmatched parenthesis"),
        (["--user", "ann", "on", "--aclfile", "users.acl"], "not in both"),
        (["--aclfile", "nowhere.acl"], "nowhere.acl"),
        (["--user", "ann", "<mine"], "does not exist"),
    ],
)
def test_no_start_with_users_that_cannot_be(tmp_path, arguments, complaint):
    config = Config()
    config.read_arguments(["--port", "free", "--dir", str(tmp_path), *arguments])
    with pytest.raises(HeadraceError, match=complaint) as refusal:
        Server(config).open()
    assert "mine" not in str(refusal.value)


def test_a_user_has_a_limited_number_of_selectors(start):
    client = start().connect()
    assert client.request("ACL", "SETUSER", "ann", *["(~a +get)"] * 1000) == "OK"
    text = refused(client, "ACL", "SETUSER", "ann", "(~b +get)")
    assert "at most 1000 selectors" in text
    assert client.request("ACL", "SETUSER", "ann", "clearselectors", "(~b +get)") == "OK"
