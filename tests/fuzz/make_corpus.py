"""Create the initial corpus: python tests/fuzz/make_corpus.py

What rounds.py --grow and failures of the past have added is left alone.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.driver import CORPUS
from fuzz.recipes import recipe_of, recipe_of_file
from fuzz.targets_arrow import DEFAULT, SENT
from fuzz.targets_files import BETWEEN_FILES
from fuzz.using import NOW
from headrace.engine.engine import Engine
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.cold import cold_file
from headrace.persistence.cold.codec import ZlibCodec, ZstdCodec
from headrace.persistence.dump import dump
from headrace.persistence.lzf import LzfCompressor
from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.versions import VERSIONS
from headrace.persistence.rdb.writer import write_rdb
from headrace.resp.request import bulk
from headrace.resp.request import request as encoded
from headrace.server.config.directives import DIRECTIVES
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.source.arrow_reader import column_arguments
from headrace.structures.listpack import Listpack
from support.random_streams import random_stream

VECTORS = Path(__file__).parent.parent / "conformance" / "vectors"
Seeds = Iterator[tuple[str, bytes]]  # target and input
HISTORY = b"""XADD s 1-1 f v;XADD s 1-2 f 12 g x;XADD s MAXLEN ~ 10 5-0 f -70000;XGROUP CREATE s g 0;
XCLAIM s g ann 0 1-1 FORCE JUSTID;XADD s 6-0 h i;XDEL s 1-2;XADD s IDMP p a * f v;SET k text;SET l 12 PXAT 1800000000000;
XACK s g 1-1;XTRIM s MAXLEN 3;SELECT 1;XADD t 1-1 a b;PEXPIREAT t 1800000000000;XGROUP CREATE t h $;XSETID t 9-9"""
COMMANDS = b"""XADD s * f v;XRANGE s - + COUNT 2;XREAD BLOCK 10 STREAMS s $;XGROUP CREATE s h $ MKSTREAM;PING
XREADGROUP GROUP g c COUNT 1 BLOCK 5 STREAMS s >;XADD s 9-* a b c d;XPENDING s g - + 9 c;XACK s g 1-1;XINFO STREAM s FULL
XCLAIM s g d 0 1-1 IDLE 5 RETRYCOUNT 3;XAUTOCLAIM s g d 0 0 COUNT 1 JUSTID;XNACK s g FAIL IDS 1 2-1;XACKDEL s g ACKED IDS 1 2-1
XTRIM s MINID ~ 2 LIMIT 5;XDELEX s DELREF IDS 2 1-1 2-1;XSETID s 9-9 ENTRIESADDED 10 MAXDELETEDID 1-1;XCOUNT s - +;XLAG s
XADD s IDMP p a * f v;XADD s IDMPAUTO p MAXLEN ~ 5 * f v;XCFGSET s IDMP-MAXSIZE 3;XIDMPRECORD s p b 3-1
SET k v EX 5 NX;SETRANGE k 5 ab;GETRANGE k 0 -1;INCRBYFLOAT k 1.5;APPEND k x;MSET a 1 b 2;GETEX k PXAT 5;GETDEL k
MULTI;XADD s * f v;SET k 1;EXEC;WATCH k;DISCARD;SUBSCRIBE a b;PUBLISH a hello;PSUBSCRIBE n*;UNSUBSCRIBE;RESET
HELLO 3 SETNAME x;CLIENT LIST;CLIENT REPLY SKIP;CLIENT KILL ID 2;CLIENT NO-EVICT on;CLIENT PAUSE 5 WRITE;CLIENT UNPAUSE
ACL SETUSER bob on >x ~k* +get;ACL LIST;ACL GETUSER bob;ACL DRYRUN bob GET k;AUTH bob x;GET k;SET k 1
CONFIG SET notify-keyspace-events KEA;CONFIG GET *;SCAN 0 MATCH s* COUNT 5 TYPE stream;OBJECT ENCODING s;COPY s t REPLACE DB 1
RENAME s t;MOVE t 1;SWAPDB 0 1;EXPIRE k 5 GT;PERSIST k;KEYS *;DEBUG OBJECT s;MEMORY USAGE s;COMMAND INFO get xadd;INFO
XARROW s - + COUNT 2 COLUMNS 3 f INT64 g UTF8 * ID;XARROW s (1 + ANCHOR MODE DROPMALFORMED COLUMNS 1 * FIELDS
SLOWLOG GET 5;LATENCY HISTOGRAM;FLUSHALL;RANDOMKEY;SELECT 3;DBSIZE;EVALSHA x 0;SCRIPT LOAD x;WAIT 0 0;TIME;ROLE;LASTSAVE"""
REPLIES = [
    b"*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n+OK\r\n:5\r\n-ERR no\r\n$-1\r\n*-1\r\n",
    b"%2\r\n+a\r\n:1\r\n*1\r\n:2\r\n_\r\n~2\r\n#t\r\n#f\r\n>2\r\n+message\r\n$1\r\nx\r\n",
    b"|1\r\n+ttl\r\n:3\r\n,1.5\r\n,inf\r\n,nan\r\n(12345678901234567890123\r\n=7\r\ntxt:abc\r\n!5\r\nERR x\r\n",
]
LINES = [b"PING", b'SET "a b" \'c\' "\\x41\\n\\""', b'x"y" z', b"'it\\'s' \"\"", b"a\0b \t\v\f c"]
USERS = b"""user default on nopass ~* &* +@all
user ann on >secret #5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8 ~k* %R~read:* &news.* +@read -keys +config|get
user bob off resetchannels -@all +xadd +select|1 (~a* +get) (%W~w +@write -del)
user eve on nopass sanitize-payload allkeys allchannels allcommands -@dangerous +client|list"""
OPTIONS = [
    b'batch\nurl redis://u:p@h:1/2\nsubscribe a,b\nstartingOffsets {"a": "1-1"}\nendingTimestamp 2023-11-14T22:13:20Z\nmode FAILFAST',
    b'stream\nassign ["a"]\nmaxOffsetsPerTrigger 10\nmaxBytesPerTrigger 64m\ngroupId g\nacknowledgeOnCommit true\nmaxTriggerDelay 5s',
    b'stream\nsubscribePattern a.*\nstartingOffsetsByTimestamp {"a": 1700000000000}\nstream.offsets {"offsets":{"a":{"offset":"1-1"}}}',
    b"sink\nstream s\nmaxLength 5\nminId 1-1\ntrimPolicy ACKED\ndelivery exactly-once\nkeepIds true",
]
ADDRESSES = [b"redis://localhost:6379/1?socket_timeout=5&protocol=3", b"rediss://u:p%40@h?ssl_cert_reqs=none",
    b"unix:///a/b?db=1", b"sentinel://u:p@a:1,[::1]:2/service/3?sentinel_password=x", b"clusters://a,b:7000"]  # fmt: skip
PATTERNS = [b"a*b?c\0aXXbYc", b"[a-c]x[^d]*\0bxe", b"a*a*a*a*b\0" + b"a" * 60, b"\\*[]\0*", b"h[\0h"]


def of_streams() -> Seeds:
    """Random streams with all that there is, in every version."""
    rng = Random(5)
    keyspace = Engine().keyspace
    for n in range(40):
        stream = random_stream(rng, keyspace, NOW, entries=7 if n % 4 else 25)
        body = dump(stream, VERSIONS[n % 5], compress=False, now_ms=NOW)
        if len(body) > 2500:
            continue
        yield "stream", recipe_of(body[:-10])
        if n % 3 == 0:
            yield "dump", dump(stream, VERSIONS[n % 5], compress=n % 2 == 0, now_ms=NOW)
        if stream.tail is not None:
            pack = stream.tail.pack.to_bytes()
            yield "listpack", pack[:900] if len(pack) <= 900 else Listpack().to_bytes()
            words = recipe_of(body[:-10]).split(b"]\n")[0].partition(b" k")
            yield "node", b"k" + words[2] + b"]"
    yield (
        "stream",
        b"b15 l1 k5-0 [ 2 1 1 'f 0 3 0 0 'v 4 2 -2 1 'w 4 2 1 0 'x 4 ] l2 l6 l0 l0",
    )  # an entry before its node
    yield "dump", dump(b"a text", VERSIONS[0], compress=False, now_ms=NOW)


def history() -> Engine:
    """An engine in which something has happened, and whose effects are kept."""
    engine = Engine()
    engine.set_effect_recording(True)
    session = engine.create_session()
    for line in HISTORY.replace(b"\n", b"").split(b";"):
        engine.execute(session, line.split(), NOW)
        assert not session.reply.take().startswith(b"-"), line
    return engine


def of_files() -> Seeds:
    """Snapshots and logs of one history, and manifests."""
    engine = history()
    snapshots = []
    for version in VERSIONS:
        data = bytearray()
        write_rdb(
            engine.keyspace,
            data.extend,
            version=version,
            now_ms=NOW,
            compress=False,
            aof_base=version is VERSIONS[1],
        )
        snapshots.append(bytes(data))
        yield "rdb", bytes(data)
    rng = Random(9)
    for version in VERSIONS:
        other = Engine().keyspace
        other.databases[0].put(b"s", random_stream(rng, other, NOW, entries=7))
        other.databases[1].put(b"k", b"text")
        other.databases[1].set_expiry(b"k", NOW + 5)
        data = bytearray()
        write_rdb(other, data.extend, version=version, now_ms=NOW, compress=False)
        yield "snapshot", recipe_of_file(bytes(data))
    yield (
        "snapshot",
        b"b250 sredis-ver s7.0.0 b254 l0 b251 l2 l1 b252 t1800000000000 b0 sk stext b0 sl s12 b249 b5 b248 l3",
    )
    records = [
        [b"SELECT", b"0"],
        *(words for line in HISTORY.replace(b"\n", b"").split(b";") if (words := line.split())),
    ]
    log = b"".join(encoded(*words) for words in records)
    names = LogFileNames()
    lines = [b"file %b seq 1 type %c" % (names.base_name(1, True).encode(), b"b"),
        b"file %b seq 1 type %c" % (names.incr_name(1).encode(), b"i"),
        b"file %b seq 2 type %c" % (names.incr_name(2).encode(), b"i")]  # fmt: skip
    manifest = b"\n".join([*lines, b""])
    yield "manifest", manifest
    yield "manifest", b"# note\n" + manifest + b'file "a b" seq 1 type h\r\n'
    more = encoded(b"MULTI") + encoded(b"SET", b"z", b"1") + encoded(b"EXEC") + b"#TS:1700000000\r\n"
    empty = bytearray()
    write_rdb(Engine().keyspace, empty.extend, version=VERSIONS[0], now_ms=NOW, aof_base=True)
    yield "log", BETWEEN_FILES.join([manifest, bytes(empty), log, more])
    yield "log", BETWEEN_FILES.join([manifest, snapshots[1], more, log[:-9]])
    yield "log", BETWEEN_FILES.join([lines[0] + b"\n", bytes(empty) + log])
    yield "log", BETWEEN_FILES.join([lines[1] + b"\n", b"", more + log])


def of_cold_files() -> Seeds:
    """Cold files with and without an index. What Zstandard cannot compress is in them as it is."""
    rng = Random(8)
    node = Listpack().to_bytes()
    for codec, runs in ((ZstdCodec(), 2), (ZlibCodec(), 3), (ZstdCodec(), 0)):
        data = cold_file.header(7)
        entries = []
        for i in range(runs):
            keys = sorted(rng.randbytes(16) for _ in range(i + 1))
            packed = cold_file.pack_run([(key, node) for key in keys], codec)
            entries.append(cold_file.IndexEntry(len(data), len(packed.data), packed.checksum))
            data += packed.data
        yield "cold", data
        yield "cold", data + cold_file.index_and_footer(entries, len(data))


def of_servers() -> Seeds:
    """What other servers have written, and what they refuse."""
    for path in sorted((VECTORS / "rdb").iterdir()):
        for files in json.loads(path.read_bytes())["servers"].values():
            data = base64.b64decode(files["dump.rdb"])
            if len(data) < 1000:
                yield "rdb", data
    for case in json.loads((VECTORS / "reject.json").read_bytes())["cases"]:
        yield "dump", base64.b64decode(case["payload"])


def of_compression() -> Seeds:
    """Compressed strings, behind a byte."""
    rng = Random(6)
    for text in (b"a" * 500, b"abcabcabd" * 20, bytes(rng.choices(b"ab", k=200)), bytes(range(100)) * 2):
        out = RdbOutput(None, True, LzfCompressor())
        out.string(text)
        inp = out.take()
        head = RdbInput(io.BytesIO(inp[1:]).read, checksum=False)
        head.length(), head.length()
        yield "lzf", b"\x09" + inp[1 + head.offset() :]


def of_protocol() -> Seeds:
    """Requests, replies, lines and patterns."""
    lines = COMMANDS.replace(b"\n", b";").split(b";")
    for at in range(0, len(lines), 12):
        yield "requests", b"".join(encoded(*line.split()) for line in lines[at : at + 8])
    yield "requests", b'PING\r\n\r\n*0\r\n*-1\r\nECHO "a b"\n' + encoded(b"", b"x" * 100)
    yield from (("replies", each) for each in REPLIES)
    yield from (("lines", each) for each in LINES)
    yield from (("patterns", each) for each in PATTERNS)


def of_words() -> Seeds:
    """What people write."""
    for block in COMMANDS.split(b"\n"):
        yield "commands", block.replace(b";", b"\r\n") + b"\r\n"
    yield "commands", b"".join(encoded(*line.split()) for line in COMMANDS.split(b"\n")[0].split(b";"))
    many = b" ".join(b"f%d v" % (n % 70) for n in range(90))
    yield (
        "commands",
        b"XADD m 1-1 "
        + many
        + b"\r\nXARROW m - + COLUMNS 2 f1 UTF8 * FIELDS\r\nXARROW m - + COLUMNS 1 * FIELDS\r\n",
    )
    yield "users", USERS
    yield from (("users", line) for line in USERS.split(b"\n"))
    plain = [d for d in DIRECTIVES if d.name != "user" and d.default]
    for at in range(0, len(plain), 6):
        yield "config", "".join(f'{d.name} "{d.default}"\n' for d in plain[at : at + 6]).encode()
    yield (
        "config",
        b"save 900 1\nsave 300 10\nuser ann on >x ~* +get\n# note\nbind 127.0.0.1 ::1\nnotify-keyspace-events KEA\n",
    )
    yield from (("options", each) for each in OPTIONS)
    yield from (("address", each) for each in ADDRESSES)


def of_arrow() -> Seeds:
    """Replies of XRANGE and XARROW to one stream."""
    words = [
        [b"a", b"1", b"b", b"2.5"],
        [b"c", b"true", b"d", b"2023-11-14", b"e", b"12.50"],
        [b"t", b"1700000000000", b"s", b"-5"],
    ]
    words += [[b"a", b"[1,2]", b"b", b'{"x":"y"}'], [], [b"a", b"x" * 200]]
    engine = Engine()
    session = engine.create_session()
    for at, each in enumerate(words):
        engine.execute(session, [b"XADD", b"s", b"%d-1" % (at + 1), *(each or [b"", b""])], NOW)
    session.reply.take()
    engine.execute(session, [b"XRANGE", b"s", b"-", b"+"], NOW)
    page = session.reply.take()
    for first in (0, 1, 2, 3, 5, 9, 64, 129):
        yield "pages", bytes([first]) + page
    usual = [
        encoded(b"%d-0" % (1700000000000 + n), b"x")[4:-7] + b"*2\r\n" + bulk(b"a") + bulk(b"%d" % n)
        for n in range(12)
    ]
    for first in (1, 3, 65, 128):
        yield "pages", bytes([first]) + b"*12\r\n" + b"".join(b"*2\r\n" + entry for entry in usual)
    yield "pages", b"\0*1\r\n*2\r\n" + bulk(b"1-1") + b"$-1\r\n"
    yield "pages", b"\0-ERR no such thing\r\n"
    for at, kind in enumerate((DEFAULT, SENT)):
        columns = column_arguments(ColumnLayout(kind, "epoch_ms"))
        assert columns
        for count in (0, 2, 9):
            engine.execute(
                session,
                [
                    b"XARROW",
                    b"s",
                    b"-",
                    b"+",
                    b"COUNT",
                    b"%d" % count,
                    b"COLUMNS",
                    b"%d" % (len(columns) // 2),
                    *columns,
                ],
                NOW,
            )
            yield "batches", bytes([at]) + session.reply.take()


def main() -> None:
    """Write them all."""
    counts: dict[str, int] = {}
    for seeds in (
        of_streams,
        of_files,
        of_cold_files,
        of_servers,
        of_compression,
        of_protocol,
        of_words,
        of_arrow,
    ):
        for name, data in seeds():
            counts[name] = counts.get(name, 0) + 1
            (CORPUS / name).mkdir(parents=True, exist_ok=True)
            (CORPUS / name / f"seed-{counts[name]:02}").write_bytes(data)
    print(counts)


if __name__ == "__main__":
    main()
