"""Engines that continue after another one: from its effects, or from a snapshot."""

from __future__ import annotations

import io

from headrace.engine.engine import Engine
from headrace.engine.replaying import Replayer
from headrace.persistence import rule_records
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.versions import by_name
from headrace.persistence.rdb.writer import write_rdb
from support.engine_talk import Talk


def number_of(entry: str) -> tuple[int, int]:
    ms, seq = entry.split("-")
    return int(ms), int(seq)


def replay(records: list[tuple[int, list[bytes]]], now: int, with_rules: bool = True) -> Engine:
    engine = Engine()
    replayer = Replayer(engine, now)
    for _, words in records:
        if words[0] in (b"MULTI", b"EXEC"):
            continue
        if with_rules or rule_records.recorded_command(words) is None:
            assert replayer.replay(words) is None, words
    return engine


def restarted(talk: Talk) -> Engine:
    """Return an engine that has loaded a snapshot of this one."""
    engine = Engine()
    data = bytearray()
    write_rdb(talk.engine.keyspace, data.extend, version=by_name("compatible"), now_ms=talk.now)
    read_rdb(io.BytesIO(data), engine.keyspace, now_ms=talk.now)
    return engine
