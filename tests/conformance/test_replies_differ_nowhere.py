"""Connections, transactions and operators' commands: the same bytes as a real redis-server sends.

Where this server follows Redis 8 and the server at hand may be older (CLIENT SETINFO, CLIENT NO-TOUCH,
CLIENT KILL MAXAGE, WATCH in CLIENT LIST) the command stands in tests/commands alone.
"""

import pathlib

import pytest

from conformance.peer import conversations

HERE = pathlib.Path(__file__).parent
CONVERSATIONS = {
    heading: text
    for name in ("connections", "transactions", "operators", "waiting")
    for heading, text in conversations(HERE / f"{name}.txt").items()
}


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_both_answer_the_same_bytes(peer, name, protocol):
    peer.compare(CONVERSATIONS[name], protocol)


@pytest.mark.parametrize("protocol", [2, 3])
def test_who_waits_is_unblocked_alike(peer, protocol):
    both = peer.both(protocol)
    try:
        for words, replies in (([], 1), ([b"TIMEOUT"], 1), ([b"ERROR"], 1)):
            both.say("B", [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"])
            session, connection = both.client("B")
            _, control = both.client("A")
            control.send([b"CLIENT", b"LIST"])
            listed = control.reply()
            number = next(line for line in listed.split(b"\n") if b"cmd=xread" in line).partition(b"id=")[2]
            number = number.split()[0]
            control.send([b"CLIENT", b"UNBLOCK", number, *words])
            theirs = control.reply()
            admin, _ = both.client("A")
            ours_words = [b"CLIENT", b"UNBLOCK", b"%d" % session.id, *words]
            both.engine.execute(admin, ours_words, 0)
            assert admin.reply.take() == theirs == b":%d\r\n" % replies
            assert session.reply.take() == connection.reply()
            both.engine.woken_sessions.clear()
    finally:
        both.close()
