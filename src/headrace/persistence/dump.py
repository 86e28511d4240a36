"""DUMP payloads: one value as in an RDB file, and a footer.

    type, 1 byte | object | extras (stream_extras.py) or nothing | version, u16 le | CRC-64 of all before, le

All servers ignore bytes between the object and the footer. The version is that of the RDB format.
"""

from __future__ import annotations

from io import BytesIO

from headrace.errors import HeadraceError
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import DEFAULT_SETTINGS, Settings
from headrace.persistence.crc64 import crc64
from headrace.persistence.damage import Damaged
from headrace.persistence.lzf import LzfCompressor
from headrace.persistence.rdb import stream_extras
from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.stream_reader import drop_expired_iids, is_stream_type, read_stream
from headrace.persistence.rdb.stream_writer import write_stream
from headrace.persistence.rdb.versions import RdbVersion
from headrace.streams.stream import Stream

STRING_TYPE = 0
COMPRESSOR = LzfCompressor()  # shared: payloads are written one at a time
FOOTER_BYTES = 10
REDIS_RDB_VERSIONS = range(1, 15)
VALKEY_RDB_VERSION = 80


class WrongChecksum(HeadraceError, ValueError):
    """The payload's footer has a wrong checksum or an unknown version."""


class BadPayload(HeadraceError, ValueError):
    """The payload does not contain a valid stream or string."""


def dump(
    value: object,
    version: RdbVersion,
    *,
    compress: bool,
    now_ms: int,
    settings: Settings = DEFAULT_SETTINGS,
    complete: bool = False,
) -> bytes:
    """Return the payload of a Stream or a string.

    Args:
        now_ms: Unix milliseconds; idempotency IDs that have expired by then are left out.
        settings: the settings of the keyspace that has the value.
        complete: include what otherwise only a snapshot contains, such as when consumers were last active.

    Raises:
        TypeError: if the value is neither a Stream nor a string.
    """
    out = RdbOutput(None, compress, COMPRESSOR)
    if isinstance(value, Stream):
        out.byte(version.stream_type)
        write_stream(out, value, version.stream_type, now_ms)
        part = stream_extras.encode_extras(value, version, now_ms, settings, for_dump=not complete)
        if part is not None:
            out.raw(part)
    elif isinstance(value, (bytes, bytearray)):
        out.byte(STRING_TYPE)
        out.string(value)
    else:
        raise TypeError(f"a {type(value).__name__} has no form in RDB")
    out.u16le(version.rdb_version)
    out.u64le(out.crc())
    return out.take()


def restore(payload: bytes, keyspace: Keyspace, now_ms: int) -> Stream | bytes:
    """Return the value of a payload, to be put into keyspace. Every part is checked.

    Idempotency IDs that have expired at now_ms (Unix milliseconds) are dropped.

    Raises:
        WrongChecksum: if the footer has a wrong checksum or an unknown version.
        BadPayload: if the bytes before the footer are not a valid value.
    """
    body = len(payload) - FOOTER_BYTES
    if body < 0:
        raise WrongChecksum(f"a payload of {len(payload)} bytes is shorter than its footer of {FOOTER_BYTES}")
    version = int.from_bytes(payload[body : body + 2], "little")
    if version not in REDIS_RDB_VERSIONS and version != VALKEY_RDB_VERSION:
        raise WrongChecksum(f"a payload of version {version}, which is not known here")
    if int.from_bytes(payload[body + 2 :], "little") != crc64(payload[: body + 2]):
        raise WrongChecksum("the checksum of the payload is wrong")
    try:
        return _value(RdbInput(BytesIO(payload[:body]).read, checksum=False), keyspace, now_ms)
    except Damaged as error:
        raise BadPayload(str(error)) from None


def _value(inp: RdbInput, keyspace: Keyspace, now_ms: int) -> Stream | bytes:
    kind = inp.byte()
    if kind == STRING_TYPE:
        return inp.string()
    if not is_stream_type(kind):
        raise BadPayload(f"a value of the type {kind}; headrace holds streams and strings only")
    stream = read_stream(inp, kind, keyspace)
    part = inp.remainder()
    if stream_extras.is_extras(part):
        try:
            stream_extras.apply_extras(stream, part, keyspace)
        except ValueError as error:
            raise BadPayload(f"the extras of the stream are damaged: {error}") from None
    drop_expired_iids(stream, now_ms)
    return stream
