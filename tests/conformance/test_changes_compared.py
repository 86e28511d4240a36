"""Each request counts as many changes as in a real redis-server: after so many of them `save` saves."""

import re

from conformance.peer import now_ms, words

REQUESTS = """
    SET k v
    SET k v KEEPTTL
    SET k v NX
    MSET k 1 l 2
    MSETNX k 1 m 2
    INCR k
    APPEND k x
    SETRANGE k 0 y
    GETSET k z
    GETEX k PERSIST
    GETEX k EXAT 4102444800
    GETEX k PERSIST
    PEXPIREAT k 4102444800000
    PEXPIREAT k 4102444800000 GT
    PERSIST k
    PERSIST k
    RENAME k n
    RENAME n n
    RENAMENX n l
    RENAMENX n k
    COPY k n
    COPY k n
    COPY k n REPLACE
    COPY k n DB 1
    MOVE n 1
    MOVE k 1
    DEL n nothing
    SET n v
    EXPIRE n -1
    XADD s 1-0 f v
    XADD s 1-0 f v
    XADD s MAXLEN 2 2-0 f v
    XADD s MAXLEN 1 3-0 f v
    XADD s 4-0 f v
    XADD s 5-0 f v
    XADD s 6-0 f v
    XTRIM s MAXLEN 3
    XTRIM s MAXLEN 3
    XDEL s 4-0 5-0 9-0
    XADD s 7-0 f v
    XADD s 8-0 f v
    XSETID s 9-0
    XGROUP CREATE s g 0
    XGROUP CREATE s g 0
    XGROUP CREATE t g $ MKSTREAM
    XGROUP CREATE t h $ MKSTREAM
    XGROUP CREATECONSUMER s g ann
    XGROUP CREATECONSUMER s g ann
    XREADGROUP GROUP g ann STREAMS s >
    XREADGROUP GROUP g ann STREAMS s >
    XACK s g 6-0 1-0
    XCLAIM s g bob 0 7-0 8-0
    XCLAIM s g bob 99999999 7-0 LASTID 20-0
    XAUTOCLAIM s g ann 0 - COUNT 1
    XDEL s 8-0
    XAUTOCLAIM s g ann 0 -
    XGROUP SETID s g 0
    XGROUP DELCONSUMER s g bob
    XGROUP DELCONSUMER s g bob
    XGROUP DESTROY s g
    XGROUP DESTROY s g
    RENAME s u
    SWAPDB 0 1
    FLUSHDB
    FLUSHDB
    SWAPDB 0 1
    MULTI
    RENAME u v
    SET k v
    EXEC
    FLUSHALL
    FLUSHALL
"""


def changes_there(peer) -> int:
    peer.control.send([b"INFO", b"persistence"])
    found = re.search(rb"rdb_changes_since_last_save:(\d+)", peer.control.reply())
    assert found is not None
    return int(found[1])


def test_each_request_counts_the_same_changes(peer):
    both = peer.both()
    session, connection = both.client("A")
    try:
        for line in REQUESTS.strip().splitlines():
            ours, theirs = both.engine.keyspace.changes, changes_there(peer)
            both.engine.execute(session, words(line), now_ms())
            connection.send(words(line))
            assert session.reply.take()[:1] == connection.reply()[:1], line
            assert both.engine.keyspace.changes - ours == changes_there(peer) - theirs, line
    finally:
        both.close()
