"""Write an RDB file: the snapshot of a whole keyspace; reader.py shows its bytes.

Keys and iids that have expired at now_ms are left out. Data that only Headrace has are in auxiliary fields
(see stream_extras.py), which other servers skip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import cython

from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.keyspace_image import DatabaseImage, KeyspaceImage
from headrace.persistence.rdb import stream_extras
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.stream_extras import extras_steps, may_have_extras, run_extras_steps
from headrace.persistence.rdb.stream_writer import stream_steps, write_image
from headrace.persistence.rdb.versions import TYPE_COLD, RdbVersion
from headrace.streams.stream_image import StreamImage

LIBRARY_OPCODE = cython.declare(cython.uchar, 0xF5)
AUX_OPCODE = cython.declare(cython.uchar, 0xFA)
SIZE_HINT_OPCODE = cython.declare(cython.uchar, 0xFB)
EXPIRES_MS_OPCODE = cython.declare(cython.uchar, 0xFC)
DATABASE_OPCODE = cython.declare(cython.uchar, 0xFE)
END_OPCODE = cython.declare(cython.uchar, 0xFF)
STRING_TYPE = cython.declare(cython.uchar, 0)
NO_EXPIRY = cython.declare(cython.longlong, -1)
PROGRESS_BYTES = 1 << 20


class SnapshotSize(NamedTuple):
    """The size of the file, and the number of keys in it."""

    bytes: int
    key_count: int


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
    references: Any = None,
) -> SnapshotSize:
    """Write all keys that have not expired at now_ms (Unix ms) to sink(bytes), in pieces of up to 64 KiB.

    Args:
        checksum: False writes zeros, which readers accept as "not computed".
        aof_base: the file is the base of a log.
        aux: more auxiliary fields, by name.
        progress: called about every MiB with the bytes written.
        references: see rdb_steps().

    Raises:
        DamagedColdRun: if a cold run cannot be read.
        Exception: what sink raises.
    """
    out = RdbOutput(sink if progress is None else _sink_with_progress(sink, progress), compress)
    image = keyspace.view(now_ms)
    steps = rdb_steps(image, out, version=version, aof_base=aof_base, aux=aux, references=references)
    keys = deque(steps, maxlen=1)[0]
    out.write_trailer(checksum)
    return SnapshotSize(out.offset(), keys)


def rdb_steps(
    image: KeyspaceImage,
    out: RdbOutput,
    *,
    version: RdbVersion,
    aof_base: bool = False,
    aux: Mapping[bytes, bytes] | None = None,
    references: Any = None,
) -> Iterator[int]:
    """Write the file in steps of about image.walk_step_bytes; yield the number of keys so far.

    After the last step call out.write_trailer().

    It yields at least once, at the end. Other work can be done between two steps if Keyspace.freeze() has
    made the image. Arguments: see write_rdb().

    references: refer to cold runs instead of writing their nodes, and add them to this ColdReferences; only
        for the base of a log. Keep it until a durable manifest names the files.
    """
    out.raw(b"REDIS%04d" % version.rdb_version)
    _write_aux(out, b"redis-bits", 64)
    _write_aux(out, b"ctime", image.now_ms // 1000)
    _write_aux(out, b"aof-base", int(aof_base))
    for name, value in (aux or {}).items():
        _write_aux(out, name, value)
    for text in image.libraries:
        out.byte(LIBRARY_OPCODE)
        out.string(text)
    keys = 0
    for database in image.databases:
        for count in _database_steps(out, image, database, version, references):
            yield keys + count
        keys += count
    out.byte(END_OPCODE)
    yield keys


def _write_aux(out: RdbOutput, name: bytes, value: bytes | int) -> None:
    out.byte(AUX_OPCODE)
    out.string(name)
    out.string(value if isinstance(value, bytes) else b"%d" % value)


def _database_steps(
    out: RdbOutput,
    image: KeyspaceImage,
    database: DatabaseImage,
    version: RdbVersion,
    references: Any,
) -> Iterator[int]:
    """Write the database unless all its keys have expired; yield the number of keys so far."""
    key: bytes | None
    dies_at: cython.longlong
    due: cython.longlong = out.offset() + image.walk_step_bytes
    written: cython.Py_ssize_t = 0
    stream: StreamImage
    if database.key_count > 0:
        out.byte(DATABASE_OPCODE)
        out.length(database.index)
        out.byte(SIZE_HINT_OPCODE)
        out.length(database.key_count)
        out.length(database.expiring_count)
    while (key := database.next_key()) is not None:
        dies_at = database.expiry_of(key)
        value = database.take_value(key)
        if dies_at == NO_EXPIRY or dies_at > image.now_ms:
            if isinstance(value, StreamImage):
                stream = value
                stream.yields_cold_runs = stream.has_runs and (references is not None or out.deferred)
            if isinstance(value, StreamImage) and value.is_frozen():
                for _ in _frozen_stream_steps(out, image, key, value, version, dies_at, references):
                    yield written
            else:
                _write_key(out, image, key, value, version, dies_at, references)
            written += 1
        if out.offset() >= due:
            yield written
            due = out.offset() + image.walk_step_bytes
    yield written


def _frozen_stream_steps(
    out: RdbOutput,
    image: KeyspaceImage,
    key: bytes,
    stream: StreamImage,
    version: RdbVersion,
    dies_at: cython.longlong,
    references: Any,
) -> Iterator[None]:
    """Write a stream in steps."""
    if may_have_extras(stream, image.settings):
        part = yield from extras_steps(stream, version, image.now_ms, image.settings)
        if part is not None:
            _write_aux(out, stream_extras.AUX_NAME, part)
    _write_head(out, key, _type_of(stream, version, references), dies_at)
    yield from stream_steps(out, stream, version.stream_type, image.now_ms, image.walk_step_bytes, references)


@cython.cfunc
def _write_key(
    out: RdbOutput,
    image: KeyspaceImage,
    key: bytes,
    value: object,
    version: RdbVersion,
    dies_at: cython.longlong,
    references: Any,
) -> cython.void:
    """Write a key at once: a string, or the view of a stream, which is valid until the next change only."""
    stream: StreamImage
    if isinstance(value, StreamImage):
        stream = value
        if may_have_extras(stream, image.settings):
            part = run_extras_steps(extras_steps(stream, version, image.now_ms, image.settings))
            if part is not None:
                _write_aux(out, stream_extras.AUX_NAME, part)
        _write_head(out, key, _type_of(stream, version, references), dies_at)
        write_image(out, stream, version.stream_type, image.now_ms, references)
    else:
        assert isinstance(value, (bytes, bytearray)), f"a {type(value).__name__} has no form in RDB"
        _write_head(out, key, STRING_TYPE, dies_at)
        out.string(value)


@cython.cfunc
def _type_of(stream: StreamImage, version: RdbVersion, references: Any) -> cython.int:
    """Return the type byte of a stream."""
    kind: cython.int = (
        TYPE_COLD if stream.yields_cold_runs and references is not None else version.stream_type
    )
    return kind


@cython.cfunc
def _write_head(out: RdbOutput, key: bytes, kind: cython.int, dies_at: cython.longlong) -> cython.void:
    """Write what comes before a value."""
    if dies_at != NO_EXPIRY:
        out.byte(EXPIRES_MS_OPCODE)
        out.time(dies_at)
    out.byte(kind)
    out.string(key)


def _sink_with_progress(
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
