"""Connections, transactions and operators' commands: the same bytes as a real redis-server sends.

Where this server follows Redis 8 and the server at hand may be older (CLIENT SETINFO, CLIENT NO-TOUCH,
CLIENT KILL MAXAGE, WATCH in CLIENT LIST) the command stands in tests/commands alone.
"""

import pytest

CONVERSATIONS = {
    "ping and echo": """
        PING
        ping
        Ping
        PING hello
        PING "a\\r\\nb"
        PING a b
        ECHO hello
        ECHO ""
        ECHO
        ECHO a b
        ping ""
    """,
    "unknown commands": """
        NOSUCH
        NOSUCH a
        NOSUCH a b "" c
        "" a
        "a\\r\\nb" "c\\r\\nd"
        "caf\\xc3\\xa9" "\\xff\\xfe"
        NOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCHNOSUCH x
        NOSUCH aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb c
        NOSUCH aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb c
        config|get maxmemory
        CONFIG
        CONFIG NOSUCH
        config NOSUCH a b
        Config get
        CONFIG GET
        CLIENT
        CLIENT NOSUCH
        CLIENT "a\\nb"
        COMMAND NOSUCH
        MEMORY NOSUCH
        LATENCY NOSUCH
        SLOWLOG NOSUCH
        OBJECT NOSUCH
    """,
    "arity": """
        GET
        GET a b
        get
        SET
        SET a
        MULTI a
        EXEC a
        DISCARD a
        WATCH
        UNWATCH a
        SELECT
        SELECT 1 2
        AUTH
        RESET a
        TIME a
        WAIT
        WAIT 1
        WAIT 1 2 3
        CLIENT ID a
        CLIENT GETNAME a
        CLIENT SETNAME
        CLIENT SETNAME a b
        CLIENT INFO a
        CLIENT KILL
        CLIENT PAUSE
        CLIENT UNPAUSE a
        CLIENT REPLY
        CLIENT UNBLOCK
        CLIENT NO-EVICT
        CONFIG SET
        CONFIG SET a
        CONFIG RESETSTAT a
        CONFIG REWRITE a
        COMMAND COUNT a
        COMMAND GETKEYS
        MEMORY USAGE
        MEMORY DOCTOR a
        LATENCY HISTORY
        LATENCY LATEST a
        LATENCY GRAPH
        SLOWLOG LEN a
        SLOWLOG RESET a
        ROLE a
    """,
    "hello": """
        HELLO 1
        HELLO 4
        HELLO x
        HELLO 99999999999999999999
        HELLO -1
        HELLO ""
        HELLO 3 FOO
        HELLO 3 SETNAME
        HELLO 3 SETNAME a b
        HELLO 3 SETNAME "a b"
        HELLO 3 AUTH
        HELLO 3 AUTH a
        HELLO 3 AUTH a b
        HELLO 3 AUTH default
        HELLO 2 AUTH default anything SETNAME two  #!
        CLIENT GETNAME
        HELLO 3 SETNAME three                      #!
        CLIENT GETNAME
        GET none
        HELLO 2                                    #!
        GET none
    """,
    "auth": """
        AUTH secret
        AUTH default secret
        AUTH default ""
        AUTH other secret
        AUTH a b c
        AUTH "" ""
    """,
    "select": """
        SELECT 1
        SET k one
        SELECT 0
        GET k
        SELECT 15
        SELECT 16
        SELECT -1
        SELECT x
        SELECT ""
        SELECT 01
        SELECT 2147483647
        SELECT 2147483648
        SELECT -2147483649
        SELECT 99999999999999999999
        SELECT 1
        GET k
        B> GET k
        B> SELECT 1
        B> GET k
    """,
    "transactions": """
        MULTI
        SET a 1
        INCR a
        GET a
        GET none
        B> GET a
        EXEC
        GET a
        MULTI
        EXEC
        EXEC
        DISCARD
        MULTI
        MULTI
        PING
        EXEC
        MULTI
        WATCH a
        PING
        EXEC
        MULTI
        DISCARD
        EXEC
        MULTI
        SET a 5
        DISCARD
        GET a
    """,
    "errors in transactions": """
        MULTI
        NOSUCH a
        PING
        EXEC
        EXEC
        MULTI
        GET
        EXEC
        MULTI
        CONFIG NOSUCH
        EXEC
        MULTI
        CLIENT
        EXEC
        MULTI
        SHUTDOWN NOSAVE
        EXEC
        MULTI
        SHUTDOWN
        DISCARD
        MULTI
        SET a x
        INCR a
        XADD a * f v
        SET a 1 NX XX
        GET a
        EXEC
        GET a
        MULTI
        SELECT 99
        AUTH x
        EXEC a
        EXEC
        WATCH k
        B> SET k 1
        EXEC a
        MULTI
        EXEC
    """,
    "watch": """
        WATCH k
        SET k 1
        MULTI
        SET k 2
        EXEC
        GET k
        WATCH k
        B> SET k 3
        MULTI
        GET k
        EXEC
        WATCH k
        GET k
        MULTI
        GET k
        EXEC
        WATCH k other
        B> SET other 1
        UNWATCH
        MULTI
        GET k
        EXEC
        WATCH k k k
        B> DEL none
        MULTI
        GET k
        EXEC
        WATCH k
        MULTI
        B> DEL k
        DISCARD
        MULTI
        GET k
        EXEC
        WATCH k
        B> SET k back
        UNWATCH
        WATCH k
        MULTI
        GET k
        EXEC
        WATCH k
        B> SET k v
        MULTI
        NOSUCH
        EXEC
        MULTI
        PING
        EXEC
        WATCH k
        MULTI
        UNWATCH
        PING
        EXEC
    """,
    "watched keys come and go": """
        WATCH s
        B> XADD s 1-1 f v
        MULTI
        PING
        EXEC
        WATCH s
        B> XLEN s
        MULTI
        PING
        EXEC
        WATCH s
        B> XDEL s 9-9
        MULTI
        PING
        EXEC
        WATCH s
        B> XTRIM s MAXLEN 0
        MULTI
        PING
        EXEC
        WATCH a
        B> RENAME s a
        MULTI
        PING
        EXEC
        WATCH a
        B> EXPIRE a 100
        MULTI
        PING
        EXEC
        WATCH a
        B> PERSIST a
        MULTI
        PING
        EXEC
        WATCH a
        B> PERSIST a
        MULTI
        PING
        EXEC
        WATCH a
        B> MOVE a 3
        MULTI
        PING
        EXEC
        WATCH a
        B> COPY none a
        MULTI
        PING
        EXEC
        SET b 1
        WATCH b c
        B> FLUSHDB
        MULTI
        PING
        EXEC
        WATCH b c
        B> FLUSHALL
        MULTI
        PING
        EXEC
        SET b 1
        WATCH b
        B> SWAPDB 0 1
        MULTI
        PING
        EXEC
        WATCH b
        B> SWAPDB 0 1
        MULTI
        PING
        EXEC
        WATCH none
        B> SWAPDB 0 1
        MULTI
        PING
        EXEC
        SELECT 2
        WATCH k
        SELECT 0
        B> SET k 1
        MULTI
        PING
        EXEC
        SELECT 2
        WATCH k
        SELECT 0
        B> SELECT 2
        B> SET k 1
        MULTI
        PING
        EXEC
    """,
    "watched keys die of age": """
        SET k v PX 300
        WATCH k
        sleep 600
        MULTI
        GET k
        EXEC
        SET k v PX 300
        sleep 600
        WATCH k
        MULTI
        GET k
        EXEC
        WATCH none
        SET other v PX 300
        sleep 600
        GET other
        MULTI
        EXEC
    """,
    "reset and quit": """
        SELECT 3
        CLIENT SETNAME me
        WATCH a
        MULTI
        RESET
        EXEC
        CLIENT GETNAME
        GET a
        MULTI
        PING
        QUIT
        B> QUIT now
    """,
    "client names": """
        CLIENT GETNAME
        CLIENT SETNAME me
        CLIENT GETNAME
        client setname "a b"
        CLIENT SETNAME "a\\n"
        CLIENT SETNAME "caf\\xc3\\xa9"
        CLIENT SETNAME ""
        CLIENT GETNAME
        B> CLIENT GETNAME
    """,
    "client refusals": """
        CLIENT KILL 1.2.3.4:5
        CLIENT KILL ID 999999
        CLIENT KILL ID x
        CLIENT KILL ID 0
        CLIENT KILL ID -1
        CLIENT KILL ID
        CLIENT KILL FOO bar
        CLIENT KILL TYPE foo
        CLIENT KILL TYPE master
        CLIENT KILL TYPE replica
        CLIENT KILL TYPE slave
        CLIENT KILL TYPE pubsub SKIPME yes
        CLIENT KILL ADDR 1.2.3.4:5
        CLIENT KILL LADDR 1.2.3.4:5
        CLIENT KILL ADDR a ID
        CLIENT KILL SKIPME maybe
        CLIENT KILL USER nosuch
        CLIENT KILL ID 999999 ADDR 1.2.3.4:5 USER default SKIPME no
        CLIENT LIST FOO
        CLIENT LIST TYPE
        CLIENT LIST TYPE foo
        CLIENT LIST TYPE master
        CLIENT LIST TYPE pubsub
        CLIENT LIST ID
        CLIENT LIST ID x
        CLIENT LIST ID 999999 999998
        CLIENT LIST TYPE normal x
        CLIENT UNBLOCK 999999
        CLIENT UNBLOCK x
        CLIENT UNBLOCK 999999 TIMEOUT
        CLIENT UNBLOCK 999999 ERROR
        CLIENT UNBLOCK 999999 FOO
        CLIENT PAUSE x
        CLIENT PAUSE -1
        CLIENT PAUSE 1 FOO
        CLIENT PAUSE 99999999999999999999
        CLIENT PAUSE 0
        PING
        CLIENT UNPAUSE
        CLIENT REPLY FOO
        CLIENT NO-EVICT maybe
        CLIENT NO-EVICT ON
        CLIENT NO-EVICT off
        CLIENT GETREDIR
    """,
    "replies turned off": """
        CLIENT REPLY ON
        CLIENT REPLY SKIP
        PING
        PING
        CLIENT REPLY OFF
        PING
        NOSUCH
        CLIENT REPLY SKIP
        PING
        CLIENT REPLY ON
        PING
        CLIENT REPLY SKIP
        CLIENT REPLY SKIP
        PING
        PING
        CLIENT REPLY SKIP
        CLIENT REPLY ON
        PING
        CLIENT REPLY SKIP
        NOSUCH
        PING
        CLIENT REPLY SKIP
        GET
        PING
    """,
    "command": """
        COMMAND GETKEYS GET k
        COMMAND GETKEYS MSET a 1 b 2
        COMMAND GETKEYS SET a b EX 10
        COMMAND GETKEYS DEL a b c
        COMMAND GETKEYS XADD s * f v
        COMMAND GETKEYS XREAD COUNT 2 BLOCK 0 STREAMS a b 0 0
        COMMAND GETKEYS XRANGE s - +
        COMMAND GETKEYS XINFO STREAM s
        COMMAND GETKEYS OBJECT ENCODING k
        COMMAND GETKEYS MEMORY USAGE k
        COMMAND GETKEYS WATCH a b
        COMMAND GETKEYS RENAME a b
        COMMAND GETKEYS COPY a b
        COMMAND GETKEYS NOSUCH a
        COMMAND GETKEYS CONFIG GET a
        COMMAND GETKEYS ECHO a
        COMMAND GETKEYS SET a
        COMMAND INFO nosuch
        COMMAND INFO nosuch none
        COMMAND DOCS nosuch
        COMMAND LIST FOO
        COMMAND LIST FILTERBY FOO bar
        COMMAND LIST FILTERBY PATTERN
        COMMAND LIST FILTERBY PATTERN nosuch*
        COMMAND LIST FILTERBY PATTERN getr*
        COMMAND LIST FILTERBY MODULE none
        COMMAND LIST FILTERBY ACLCAT nosuch
        COMMAND LIST FILTERBY PATTERN a b
    """,
    "config": """
        CONFIG GET maxmemory
        CONFIG GET stream-node-max-entries
        CONFIG GET STREAM-NODE-MAX-E*
        CONFIG GET nosuch
        CONFIG GET nosuch* maxmemory MAXMEMORY
        CONFIG GET save
        CONFIG GET appendonly
        CONFIG SET nosuch 1
        CONFIG SET maxmemory 1 nosuch
        CONFIG SET stream-node-max-entries 7
        CONFIG GET stream-node-max-entries
        CONFIG SET stream-node-max-entries x
        CONFIG SET stream-node-max-entries -1
        CONFIG SET stream-node-max-entries 99999999999999999999
        CONFIG SET stream-node-max-entries 5 nosuch 1
        CONFIG SET stream-node-max-entries 5 stream-node-max-entries 6
        CONFIG GET stream-node-max-entries
        CONFIG SET nosuch 1 nosuch 2
        CONFIG SET databases 17
        CONFIG SET stream-node-max-entries 100
        CONFIG RESETSTAT
        CONFIG REWRITE
    """,
    "figures nobody keeps": """
        SLOWLOG GET
        SLOWLOG GET 10
        SLOWLOG GET -1
        SLOWLOG GET -2
        SLOWLOG GET x
        SLOWLOG LEN
        SLOWLOG RESET
        LATENCY LATEST
        LATENCY HISTORY event
        LATENCY RESET
        LATENCY RESET a b
        LATENCY GRAPH event
        LATENCY HISTOGRAM nosuch
        MEMORY USAGE none
        MEMORY USAGE none SAMPLES 5
        MEMORY USAGE none SAMPLES
        MEMORY USAGE none SAMPLES x
        MEMORY USAGE none SAMPLES -1
        MEMORY USAGE none FOO 1
        MEMORY PURGE
        INFO nosuch
        INFO keyspace
        SHUTDOWN FOO
        SHUTDOWN SAVE NOSAVE
        SHUTDOWN ABORT
        SHUTDOWN ABORT NOW
        SHUTDOWN SAVE ABORT
    """,
    "wait": """
        WAIT 0 0
        WAIT 0 10
        WAIT 1 500        #!
        sleep 900
        PING
        WAIT x 0
        WAIT 1 x
        WAIT 1 -1
        WAIT -1 0
        WAIT 99999999999999999999 0
        WAIT 1 99999999999999999999
        MULTI
        WAIT 1 0
        EXEC
    """,
    "blocked readers": """
        XADD s 1-1 f v
        B> XREAD BLOCK 0 STREAMS s $
        XADD s 1-2 f v
        B> XREAD BLOCK 0 STREAMS s t $ 0
        C> XREAD BLOCK 0 COUNT 1 STREAMS t 0
        MULTI
        XADD t 1-1 f v
        XADD t 1-2 g w
        XREAD BLOCK 0 STREAMS s $
        EXEC
        B> XREAD BLOCK 0 STREAMS s $
        MULTI
        XADD s 2-1 f v
        DEL s
        EXEC
        XADD s 3-1 f v
        B> XREAD BLOCK 0 STREAMS z 0
        SET z string
        DEL z
        RENAME s z
        B> XREAD BLOCK 0 STREAMS z $
        C> SELECT 1
        C> XADD z 9-1 f v
        SWAPDB 0 1
        B> XREAD BLOCK 500 STREAMS z $
        sleep 900
        B> PING
    """,
    "blocked readers and answers that are off": """
        B> CLIENT REPLY SKIP
        B> XREAD BLOCK 0 STREAMS s $
        XADD s 1-1 f v
        B> PING
        B> CLIENT REPLY OFF
        B> XREAD BLOCK 0 STREAMS s $
        XADD s 1-2 f v
        B> CLIENT REPLY ON
    """,
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
            assert admin.answer.take() == theirs == b":%d\r\n" % replies
            assert session.answer.take() == connection.reply()
            both.engine.woken.clear()
    finally:
        both.close()
