"""Write an RDB file: the snapshot of a whole keyspace; reader.py shows its bytes.

Keys and iids that have expired at now_ms are left out. Data that only Headrace has are in auxiliary fields
(see stream_extras.py), which other servers skip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import cython

from headrace.keyspace.keyspace import Database, Keyspace
from headrace.keyspace.settings import Settings
from headrace.persistence.rdb import stream_extras
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.stream_writer import write_stream
from headrace.persistence.rdb.versions import RdbVersion
from headrace.streams.stream import Stream

AUX = cython.declare(cython.uchar, 0xFA)
SIZE_HINT = cython.declare(cython.uchar, 0xFB)
EXPIRES_MS = cython.declare(cython.uchar, 0xFC)
DATABASE = cython.declare(cython.uchar, 0xFE)
END = cython.declare(cython.uchar, 0xFF)
STRING_TYPE = cython.declare(cython.uchar, 0)
IMMORTAL = cython.declare(cython.longlong, -1)
PROGRESS_BYTES = 1 << 20


class SnapshotSize(NamedTuple):
    """The size of the file, and the number of keys in it."""

    bytes: int
    keys: int


def write_rdb(
    keyspace: Keyspace,
    sink: Callable[[bytes], object],
    *,
    version: RdbVersion,
    compress: bool = True,
    checksum: bool = True,
    aof_base: bool = False,
    aux: Mapping[bytes, bytes] | None = None,
    now_ms: int,
    progress: Callable[[int], None] | None = None,
) -> SnapshotSize:
    """Write all keys that have not expired at now_ms to sink(bytes), in pieces of up to 64 KiB.

    Args:
        checksum: False writes zeros, which readers accept as "not computed".
        aof_base: the file is the base of a log.
        aux: more auxiliary fields, by name.
        progress: called about every MiB with the bytes written.

    Raises what sink raises.
    """
    out = RdbOutput(sink if progress is None else _progress_of(sink, progress), compress)
    out.raw(b"REDIS%04d" % version.rdb_version)
    _write_aux(out, b"redis-bits", 64)
    _write_aux(out, b"ctime", now_ms // 1000)
    _write_aux(out, b"aof-base", int(aof_base))
    for name, value in (aux or {}).items():
        _write_aux(out, name, value)
    keys = sum(_write_database(out, database, version, now_ms) for database in keyspace.databases)
    out.byte(END)
    out.u64le(out.crc() if checksum else 0)
    out.flush()
    return SnapshotSize(out.offset(), keys)


def _write_aux(out: RdbOutput, name: bytes, value: bytes | int) -> None:
    out.byte(AUX)
    out.string(name)
    out.string(value if isinstance(value, bytes) else b"%d" % value)


def _write_database(out: RdbOutput, database: Database, version: RdbVersion, now_ms: int) -> int:
    """Write the database unless all its keys have expired; return the number of keys."""
    settings = database.keyspace.settings
    dies_at = database.expiry_times.times
    dead = sum(at <= now_ms for at in dies_at.values())
    keys = len(database.values) - dead
    if keys == 0:
        return 0
    out.byte(DATABASE)
    out.length(database.index)
    out.byte(SIZE_HINT)
    out.length(keys)
    out.length(len(dies_at) - dead)
    for key, value in database.values.items():
        at = dies_at.get(key, IMMORTAL)
        if at == IMMORTAL or at > now_ms:
            _write_key(out, key, value, version, now_ms, at, settings)
    return keys


@cython.cfunc
def _write_key(
    out: RdbOutput,
    key: bytes,
    value: object,
    version: RdbVersion,
    now_ms: cython.longlong,
    dies_at: cython.longlong,
    settings: Settings,
) -> cython.void:
    stream: Stream | None = None
    if isinstance(value, Stream):
        stream = value
        part = stream_extras.encode_extras(stream, version, now_ms, settings)
        if part is not None:
            _write_aux(out, stream_extras.AUX_NAME, part)
    if dies_at != IMMORTAL:
        out.byte(EXPIRES_MS)
        out.time(dies_at)
    if stream is not None:
        out.byte(version.stream_type)
        out.string(key)
        write_stream(out, stream, version.stream_type, now_ms)
    else:
        assert isinstance(value, (bytes, bytearray)), f"a {type(value).__name__} has no form in RDB"
        out.byte(STRING_TYPE)
        out.string(key)
        out.string(value)


def _progress_of(
    sink: Callable[[bytes], object], progress: Callable[[int], None]
) -> Callable[[bytes], object]:
    """Return a sink that also calls progress about every MiB with the bytes passed on."""
    written = told = 0

    def pass_on(data: bytes) -> None:
        nonlocal written, told
        sink(data)
        written += len(data)
        if written - told >= PROGRESS_BYTES:
            told = written
            progress(written)

    return pass_on
