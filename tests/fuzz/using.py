"""Run every stream command on a stream that was loaded from hostile bytes."""

from headrace.engine.engine import Engine
from headrace.streams.stream import Stream
from support.random_streams import ids_of

NOW = 1_700_000_000_000
READING = """XLEN s;XINFO STREAM s FULL COUNT 0;XINFO STREAM s;XINFO GROUPS s;XRANGE s - +;XREVRANGE s + -;
XRANGE s (5 + COUNT 3;XREAD COUNT 5 STREAMS s 0;XREAD STREAMS s +;XCOUNT s - +;XLAG s;OBJECT ENCODING s;
MEMORY USAGE s;TYPE s;DUMP s;COPY s t;XARROW s - + COLUMNS 4 f UTF8 g FLOAT64 * FIELDS * CORRUPT;
XARROW s 5 + ANCHOR COUNT 3 MODE DROPMALFORMED COLUMNS 3 f INT64! * ID * SEQUENCE"""
OF_GROUP = """XPENDING s {g};XPENDING s {g} - + 100;XPENDING s {g} IDLE 1 - + 9;XINFO CONSUMERS s {g};
XREADGROUP GROUP {g} me COUNT 2 STREAMS s >;XREADGROUP GROUP {g} me STREAMS s 0;
XAUTOCLAIM s {g} me 0 0 COUNT 5;XREADGROUP GROUP {g} me COUNT 2 CLAIM 0 STREAMS s >;XACK s {g} {id};
XNACK s {g} FAIL IDS 1 {id};XACKDEL s {g} ACKED IDS 1 {id};XGROUP DELCONSUMER s {g} me"""
CHANGING = """XADD s * f v;XDEL s {id};XTRIM s MAXLEN 1;XADD s MAXLEN ~ 1 * f v;XTRIM s DELREF MINID {id};
XADD s IDMPAUTO p * f v;XGROUP CREATE s new 0;XREADGROUP GROUP new me STREAMS s >;XDELEX s DELREF IDS 1 {id};
XINFO STREAM s FULL;DEL s"""


def words_of(text: str, **names: bytes) -> list[list[bytes]]:
    """Split a text into requests at semicolons."""
    lines = text.replace("\n", "").split(";")
    return [[names.get(word, word.encode()) for word in line.split()] for line in lines]


READ = words_of(READING)


def use(value: Stream, now: int = NOW) -> None:
    """Run every command that reads a stream, then some that change it."""
    engine = Engine()
    session = engine.create_session()
    keyspace = engine.keyspace
    value.compaction = keyspace.compaction
    keyspace.databases[0].put(b"s", value)
    last = b"%d-%d" % ids_of(value)[-1] if value.length else b"1-1"
    requests = list(READ)
    for group in value.groups()[:3]:
        requests += words_of(OF_GROUP, **{"{g}": group.name, "{id}": last})
    requests += words_of(CHANGING, **{"{id}": last})
    for words in requests:
        engine.execute(session, words, now)
        answer = session.reply.take()
        assert answer and b"-ERR internal error" not in answer, words
        value.check()
    engine.tick(now + 10_000_000)
