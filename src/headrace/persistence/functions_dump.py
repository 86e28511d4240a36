"""Payloads of FUNCTION DUMP: the libraries as in an RDB file, and the footer of DUMP.

F5 string, for each library | version, u16 le | CRC-64 of all before, le
"""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO

from headrace.persistence.crc64 import crc64
from headrace.persistence.damage import Damaged
from headrace.persistence.dump import (
    COMPRESSOR,
    FOOTER_BYTES,
    REDIS_RDB_VERSIONS,
    VALKEY_RDB_VERSION,
    BadPayload,
    WrongChecksum,
)
from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.versions import RdbVersion

LIBRARY_OPCODE = 0xF5


def dump_libraries(texts: Iterable[bytes], version: RdbVersion, compress: bool) -> bytes:
    """Return the payload for the source texts of libraries."""
    out = RdbOutput(None, compress, COMPRESSOR)
    for text in texts:
        out.byte(LIBRARY_OPCODE)
        out.string(text)
    out.u16le(version.rdb_version)
    out.u64le(out.crc())
    return out.take()


def parse_dumped_libraries(payload: bytes) -> list[bytes]:
    """Return the source texts of the libraries in a payload. Raises WrongChecksum, BadPayload."""
    body = len(payload) - FOOTER_BYTES
    if body < 0:
        raise WrongChecksum("the payload is shorter than its footer")
    version = int.from_bytes(payload[body : body + 2], "little")
    if version not in REDIS_RDB_VERSIONS and version != VALKEY_RDB_VERSION:
        raise WrongChecksum(f"a payload of version {version}, which is not known here")
    if int.from_bytes(payload[body + 2 :], "little") != crc64(payload[: body + 2]):
        raise WrongChecksum("the checksum of the payload is wrong")
    inp = RdbInput(BytesIO(payload[:body]).read, checksum=False)
    texts = []
    try:
        while inp.offset() < body:
            if inp.byte() != LIBRARY_OPCODE:
                raise BadPayload("it contains something else than libraries")
            texts.append(inp.string())
    except Damaged as error:
        raise BadPayload(str(error)) from None
    return texts
