"""The log beside that of a real redis-server: what it says of each command, and whether it can load ours."""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from conformance import seeds
from conformance.group_commands import group_commands
from conformance.peer import Connection, now_ms, value, words
from headrace.engine.engine import Engine
from headrace.persistence.aof.log_buffer import LogBuffer
from headrace.persistence.aof.rewrite import write_commands
from headrace.resp.parser import RequestParser
from support.redis_server import redis_server

MANIFEST = "file appendonly.aof.1.base.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"
A_TIME = re.compile(rb"1[789]\d{11}")  # milliseconds of these years
SEEDS, TURNS = seeds.chosen(compiled=(6, 1200), interpreted=(2, 300))

# Each request, and what 8 and we log of it when 7.0 says something else: there is a <- for each line.
CONVERSATION = """
XADD s * f v
XADD t 1-* f v
XADD s 9000000000000 f v
XADD s NOMKSTREAM 9000000000000-* f v
XADD nokey NOMKSTREAM * f v
XADD t 5-0 f v
XADD t MAXLEN ~ 100 6-0 f v
XADD t MAXLEN 100 7-0 f v
XADD t MAXLEN = 5 8-0 f v
XADD t MINID ~ 1-2 LIMIT 10 9-0 f v
XADD t maxlen ~ 3 limit 0 10-0 f v
XTRIM t MAXLEN 4
XTRIM t MAXLEN 4
XADD t 11-0 f v
CONFIG SET stream-node-max-entries 1
XADD t 12-0 f v
XADD t 13-0 f v
XADD t 14-0 f v
XTRIM t MAXLEN ~ 2 LIMIT 0
XTRIM t MINID ~ 14-0
XDEL t 14-0 14-0 77-7
XDEL t 14-0
XTRIM t MINID ~ 99-0
XADD t 15-0 f v
XADD t 16-0 f v
XADD t 17-0 f v
XGROUP CREATE t g 0
XGROUP CREATE t h $
XGROUP CREATE u g $ MKSTREAM
XGROUP SETID t h 15-0
XGROUP CREATECONSUMER t g ann
XGROUP CREATECONSUMER t g ann
XGROUP CREATECONSUMER t g bob
XREADGROUP GROUP g ann COUNT 1 STREAMS t >
<- MULTI
<- XCLAIM t g ann 0 15-0 TIME (time) RETRYCOUNT 1 FORCE JUSTID LASTID 0-0
<- XGROUP SETID t g 15-0 ENTRIESREAD 12
<- EXEC
XREADGROUP GROUP g ann STREAMS t >
<- MULTI
<- XCLAIM t g ann 0 16-0 17-0 TIME (time) RETRYCOUNT 1 FORCE JUSTID LASTID 15-0
<- XGROUP SETID t g 17-0 ENTRIESREAD 14
<- EXEC
XREADGROUP GROUP g ann STREAMS t >
XREADGROUP GROUP g ann STREAMS t 0
<- XCLAIM t g ann 0 15-0 16-0 17-0 TIME (time) RETRYCOUNT 2 FORCE JUSTID
XREADGROUP GROUP h ann NOACK COUNT 1 STREAMS t >
<- MULTI
<- XGROUP CREATECONSUMER t h ann
<- XGROUP SETID t h 16-0 ENTRIESREAD -1
<- EXEC
XREADGROUP GROUP h ann NOACK STREAMS t >
<- XGROUP SETID t h 17-0 ENTRIESREAD 14
XACK t g 15-0 3-3
XACK t g 15-0
XCLAIM t g bob 0 16-0
XCLAIM t g bob 0 16-0 17-0 RETRYCOUNT 7 JUSTID
XCLAIM t g bob 99999999 16-0
XCLAIM t g bob 99999999 16-0 LASTID 20-0
XAUTOCLAIM t g ann 0 - COUNT 1
XDEL t 17-0
XCLAIM t g ann 0 17-0
XAUTOCLAIM t g bob 0 -
XGROUP DELCONSUMER t g bob
XGROUP DELCONSUMER t g bob
XGROUP DESTROY t h
XGROUP DESTROY t h
XSETID t 30-0
EXPIRE t 100
PEXPIRE t 100000
SET k v EX 10
SET k v PX 10000 GET
SETEX k 10 v
GETEX k PERSIST
GETEX k EX 100
GETEX k
SET k 5
INCR k
INCRBYFLOAT k 1.5
APPEND k x
GETDEL k
SETNX k 1
SETNX k 1
EXPIRE k -1
MSETNX k 1 l 2
RENAME k m
COPY m n
COPY m n
COPY m n DB 3
MOVE m 3
MOVE n 4
SWAPDB 0 4
SWAPDB 0 4
DEL nothing
DEL l nothing
SELECT 3
SET inthree 1
FLUSHDB
SELECT 0
MULTI
SET a 1
EXEC
MULTI
SET a 2
SELECT 3
SET b 2
EXEC
SELECT 0
MULTI
GET a
EXEC
FLUSHALL
"""


class Real:
    """A redis-server that keeps a log in a directory, or loads what is there."""

    def __init__(self, directory: pathlib.Path, connection: Connection) -> None:
        self.directory = directory
        self.connection = connection

    def ask(self, argv: list[bytes]) -> bytes:
        self.connection.send(argv)
        return self.connection.reply()

    def log(self) -> list[list[bytes]]:
        parser = RequestParser()
        parser.feed((self.directory / "appendonlydir/appendonly.aof.1.incr.aof").read_bytes())
        records = []
        while (argv := parser.next()) is not None:
            records.append(argv)
        return records


@contextlib.contextmanager
def logging_redis(directory: pathlib.Path) -> Iterator[Real]:
    options = ["--appendonly", "yes", "--aof-use-rdb-preamble", "no"]
    with redis_server(directory, *options) as port, contextlib.closing(Connection(port, 2)) as connection:
        yield Real(directory, connection)


def conversation() -> list[tuple[str, list[str]]]:
    """(request, what is logged of it unlike 7.0)."""
    found: list[tuple[str, list[str]]] = []
    for line in CONVERSATION.strip().splitlines():
        if line.startswith("<- "):
            found[-1][1].append(line[3:])
        else:
            found.append((line, []))
    return found


def shown(records: list[list[bytes]]) -> list[str]:
    """Records as lines; times, which differ by a little, all alike."""
    return [A_TIME.sub(b"(time)", b" ".join(argv)).decode() for argv in records]


def test_each_command_is_logged_as_redis_does(tmp_path):
    engine = Engine()
    engine.set_effect_recording(True)
    session = engine.create_session()
    ours, theirs = [], []
    requests = conversation()
    with logging_redis(tmp_path) as real:
        for i, (line, _) in enumerate(requests):
            for argv in (words(line), *([] if session.queue is not None else [[b"SET", b"mark", b"%d" % i]])):
                engine.execute(session, argv, now_ms())
                assert session.reply.take()[:1] == real.ask(argv)[:1], line
        theirs = shown(real.log())
    recorder = LogBuffer()
    recorder.put_all(engine.effects.take())
    parser = RequestParser()
    parser.feed(bytes(recorder.view()))
    while (argv := parser.next()) is not None:
        ours += shown([argv])
    expected = parts(theirs) | {i: lines for i, (_, lines) in enumerate(requests) if lines}
    for i, lines in parts(ours).items():
        assert lines == expected.pop(i), requests[i][0]
    assert not expected


def parts(lines: list[str]) -> dict[int, list[str]]:
    """What lies before each mark, by the mark's number: that of the request it followed."""
    found: dict[int, list[str]] = {}
    before: list[str] = []
    for line in lines:
        if line.startswith("SET mark "):
            found[int(line.split()[-1])] = before
            before = []
        else:
            before.append(line)
    return found


def without_8(info: Any) -> Any:
    """XINFO STREAM FULL with what 7.0 has of it, but for the lag and what no log tells."""
    stream = dict(zip(info[::2], info[1::2], strict=True))
    groups = [dict(zip(group[::2], group[1::2], strict=True)) for group in stream[b"groups"]]
    return (
        [stream[name] for name in (b"length", b"last-generated-id", b"max-deleted-entry-id")],
        [stream[name] for name in (b"entries-added", b"recorded-first-entry-id", b"entries")],
        [[group[b"name"], group[b"last-delivered-id"], group[b"entries-read"]] for group in groups],
        [[group[b"pending"], [owner(one) for one in group[b"consumers"]]] for group in groups],
    )


def owner(consumer: list[Any]) -> list[Any]:
    fields = dict(zip(consumer[::2], consumer[1::2], strict=True))
    return [fields[b"name"], fields[b"pel-count"], fields[b"pending"]]


@pytest.mark.parametrize("form", ["base", "log"])
@pytest.mark.parametrize("seed", SEEDS)
def test_redis_loads_what_we_write(tmp_path, seed, form):
    engine = Engine()
    engine.set_effect_recording(form == "log")
    session = engine.create_session()
    for i, argv in enumerate(group_commands(seed, TURNS)):
        if i == 2 * TURNS // 3:
            argv = words(f"SELECT {seed % 3}")
        engine.execute(session, argv, now_ms())
        session.reply.take()
    engine.execute(session, words("PEXPIREAT s 4102444800000"), now_ms())
    base = tmp_path / "appendonlydir/appendonly.aof.1.base.aof"
    base.parent.mkdir()
    (base.parent / "appendonly.aof.manifest").write_text(MANIFEST)
    (base.parent / "appendonly.aof.1.incr.aof").write_bytes(b"")
    with base.open("wb") as file:
        if form == "base":
            write_commands(engine.keyspace, file.write, now_ms())
        else:
            recorder = LogBuffer()
            recorder.put_all(engine.effects.take())
            file.write(recorder.view())
    with logging_redis(tmp_path) as real:
        for database in engine.keyspace.databases:
            argv = words(f"SELECT {database.index}")
            engine.execute(session, argv, now_ms())
            session.reply.take()
            real.ask(argv)
            assert real.ask([b"DBSIZE"]) == b":%d\r\n" % database.size()
            for key in list(database.values):
                for argv in ([b"PEXPIRETIME", key], [b"TYPE", key]):
                    engine.execute(session, argv, now_ms())
                    assert session.reply.take() == real.ask(argv), argv
                if database.find(key) == b"x":
                    continue
                argv = [b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]
                engine.execute(session, argv, now_ms())
                assert without_8(value(session.reply.take())[0]) == without_8(value(real.ask(argv))[0])
