"""What an operator sees of the same requests, here and in a real redis-server: the same shapes and words."""

import re

import pytest

from headrace.resp.reply_parser import ReplyParser

REQUESTS = r"""
    SET k v
    GET k
    GET
    NOSUCH k
    INCR k
    SELECT 3
    MULTI
    SET a 1
    INCR a
    EXEC
    SELECT 0
    AUTH default secret
    AUTH secret
    HELLO 2 AUTH default secret SETNAME me
    CLIENT SETNAME you
    CONFIG SET stream-node-max-entries 100
    SUBSCRIBE c
    UNSUBSCRIBE c
    WATCH k
    UNWATCH
    XADD s 1-1 f v
    XREAD COUNT 1 STREAMS s 0
    ECHO "\x00\x01 \"quoted\" \\ \a\b\t\n\r \x7f\xff caf\xc3\xa9"
    SET big "long"
    DEL 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    DEL 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    PUBLISH c m
    OBJECT HELP
    MEMORY USAGE k
    LATENCY LATEST
"""
LONG = b"x" * 140
# MEMORY STATS since 8.0: parts that this server does not have.
NEWER_STATS = {b"replica.fullsync.buffer", b"script.VMs", b"allocator.muzzy", b"db.dict.rehashing.count"}
NEWER_STATS |= {b"overhead.db.hashtable.lut", b"overhead.db.hashtable.rehashing"}
SETTINGS = (b"slowlog-log-slower-than", b"0", b"10000")


def value(reply):
    parser = ReplyParser()
    parser.feed(reply)
    return parser.next()


def request(text):
    from conformance.peer import words

    return [LONG if word == b"long" else word for word in words(text)]


@pytest.fixture
def both(peer):
    """Everything is slow, on either side."""
    peer.control.send([b"CONFIG", b"SET", *SETTINGS[:2]])
    assert peer.control.reply() == b"+OK\r\n"
    conversation = peer.both()
    settings = conversation.engine.keyspace.settings
    settings.slowlog_log_slower_than = 0
    settings.latency_tracking = True
    conversation.engine.timing.refresh()
    yield conversation
    conversation.close()
    peer.control.send([b"CONFIG", b"SET", SETTINGS[0], SETTINGS[2]])
    assert peer.control.reply() == b"+OK\r\n"


def carry_out(both):
    for line in REQUESTS.strip().splitlines():
        answers(both, line.strip(), "A")


def answers(both, text, name="B"):
    """Both answers to a request, as values."""
    session, connection = both.client(name)
    both.engine.execute(session, request(text), 1_000_000)
    connection.send(request(text))
    return value(session.reply.take()), value(connection.reply())


def test_monitors_are_shown_the_same_lines(both):
    ours, theirs = answers(both, "MONITOR", "M")
    assert ours == theirs
    carry_out(both)
    answers(both, 'ECHO "the end"', "A")
    session, connection = both.client("M")
    shown = [
        re.sub(rb"^\+[\d.]+ \[(\d+) [\d.:]*\]", rb"[\1]", line)
        for line in session.reply.take().split(b"\r\n")
    ]
    told = []
    while not told or not told[-1].endswith(b'"the end"'):
        line = connection.reply().rstrip(b"\r\n")
        assert re.match(rb"^\+\d+\.\d{6} \[\d+ [\d.:]+\] ", line)
        told.append(re.sub(rb"^\+[\d.]+ \[(\d+) [\d.:]*\]", rb"[\1]", line))
    assert shown[:-1] == told
    assert len(told) > 20


def test_slow_logs_hold_the_same_requests(both):
    answers(both, "SLOWLOG RESET")
    carry_out(both)
    ours, theirs = answers(both, "SLOWLOG GET -1")
    assert [(entry[3], entry[5]) for entry in ours] == [(entry[3], entry[5]) for entry in theirs]
    assert [list(map(type, entry)) for entry in ours] == [list(map(type, entry)) for entry in theirs]
    assert len(ours) > 25


@pytest.mark.parametrize(
    "text",
    [
        "SLOWLOG GET -2",
        "SLOWLOG GET x",
        "SLOWLOG GET 0",
        "SLOWLOG GET 1 2",
        "SLOWLOG RESET",
        "LATENCY LATEST",
        "LATENCY HISTORY nosuch",
        "LATENCY GRAPH nosuch",
        "LATENCY RESET nosuch",
        "LATENCY RESET",
        "LATENCY HISTOGRAM nosuch",
        "MONITOR",
        "MONITOR x",
        "INFO nosuch",
    ],
)
def test_small_answers_are_alike(both, text):
    ours, theirs = answers(both, text)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("names", ["", "get", "GET nosuch config", "config|set", "ping set|x"])
def test_distributions_are_of_the_same_commands(both, names):
    answers(both, "CONFIG RESETSTAT")
    carry_out(both)
    ours, theirs = answers(both, f"LATENCY HISTOGRAM {names}")

    def calls(found):
        return {
            name: (facts[0], facts[1], facts[2]) for name, facts in zip(found[::2], found[1::2], strict=True)
        }

    assert calls(ours) == calls(theirs)


def test_memory_stats_have_the_same_names_in_the_same_order(both):
    answers(both, "SET k v", "A")
    ours, theirs = answers(both, "MEMORY STATS")
    assert set(ours[::2]) >= set(theirs[::2]) - NEWER_STATS
    kinds = dict(zip(theirs[::2], map(type, theirs[1::2]), strict=True))
    assert [name for name in theirs[::2] if name in ours] == [name for name in ours[::2] if name in kinds]
    assert all(type(v) is kinds[n] for n, v in zip(ours[::2], ours[1::2], strict=True) if n in kinds)


def counted(text):
    """The lines of INFO without their times."""
    found = set()
    for line in text.decode().splitlines():
        line = re.sub(r"usec=\d+,usec_per_call=\d+\.\d\d", "usec", line)
        found.add(re.sub(r"=\d+\.\d{3}", "=", line))
    return {line for line in found if not line.startswith(("cmdstat_info:", "cmdstat_config|resetstat:"))}


def test_info_counts_the_same_calls(both):
    answers(both, "CONFIG RESETSTAT")
    carry_out(both)
    ours, theirs = answers(both, "INFO commandstats latencystats errorstats")
    assert counted(ours) == counted(theirs)


@pytest.mark.parametrize("function", ["call", "pcall"])
@pytest.mark.parametrize(
    "call",
    [
        "set",
        "'set','x'",
        "'nosuch'",
        "'subscribe','x'",
        "'set','x',1",
        "'get','s'",
        "'xadd','s','1-1','f','v'",
    ],
)
def test_the_errors_of_a_script_are_counted_the_same(both, function, call):
    pytest.importorskip("lupa.luajit21")
    answers(both, "DEL s")
    answers(both, "XADD s 1-1 f v")
    answers(both, "CONFIG RESETSTAT")
    for command in ("EVAL", "EVAL_RO"):
        answers(both, f"{command} redis.{function}({call})return(1) 0")
    ours, theirs = answers(both, "INFO commandstats errorstats")
    assert counted(ours) == counted(theirs)


def test_sections_stand_in_the_same_order(both):
    ours, theirs = answers(both, "INFO everything")
    theirs = [line for line in theirs.splitlines() if line.startswith(b"# ")]
    ours = [line for line in ours.splitlines() if line.startswith(b"# ")]
    assert set(theirs) - set(ours) <= {b"# Modules", b"# Threads", b"# Keysizes"}
    assert [line for line in theirs if line in ours] == [line for line in ours if line in theirs]


LOOKUPS = """
    GET %s
    SET %s v GET
    GETSET %s v
    GETEX %s
    GETDEL %s
    APPEND %s v
    INCR %s
    STRLEN %s
    EXISTS %s
    TYPE %s
    TTL %s
    COPY %s other
    RENAME %s other
    MEMORY USAGE %s
    OBJECT FREQ %s
    DUMP %s
    XLEN %s
    XADD %s * f v
    XDEL %s 1-1
    XACK %s g 1-1
    XPENDING %s g
    XRANGE %s - +
    XCLAIM %s g c 0 1-1
    XAUTOCLAIM %s g c 0 0
    XREAD STREAMS %s 0
    XREADGROUP GROUP g c STREAMS %s >
    XREADGROUP GROUP g c STREAMS %s 0
    XREADGROUP GROUP g c STREAMS %s s > >
    XREADGROUP GROUP none c STREAMS %s >
    XGROUP CREATECONSUMER %s g c
    XINFO STREAM %s
    XTRIM %s MAXLEN 1
"""


@pytest.mark.parametrize("request_of_key", [line.strip() for line in LOOKUPS.strip().splitlines()])
@pytest.mark.parametrize("key", ["k", "s", "missing"])
def test_hits_and_misses_are_the_same(both, request_of_key, key):
    for line in ("FLUSHALL", "SET k 1", "XADD s 1-1 f v", "XGROUP CREATE s g 0", "CONFIG RESETSTAT"):
        answers(both, line)
    reply, _ = answers(both, request_of_key % key)
    if str(reply).startswith("WRONGTYPE"):
        pytest.skip("a key of another type counts as a hit there")
    stats = []
    for text in answers(both, "INFO stats"):
        stats.append(re.findall(r"keyspace_(?:hits|misses):\d+", text.decode()))
    assert stats[0] == stats[1]
