"""The format of a cold file and of its runs: encode and check the bytes. No I/O.

A file is written once, from its start to its end; only the last one of a directory has no index yet. Numbers
are unsigned and big-endian, checksums XXH3-64.

    +--------+-----+-----+-----+-------+--------+
    | header | run | run | ... | index | footer |
    +--------+-----+-----+-----+-------+--------+

    header   "HEADRACE-COLD" | format version, 1 byte | 0, 2 bytes | number of the file, 8 | checksum, 8

    run      "RUN." | codec, 1 | 0, 3 bytes | nodes, 4 | raw bytes, 8 | packed bytes, 8 | packed | checksum, 8
                                                                                           │
             packed stands for the nodes: see packed_nodes.py  ◀────────────────────────────┘

    index    of each run: offset, 8 | bytes, 8 | checksum, 8
    footer   offset of the index, 8 | number of runs, 8 | checksum, 8 | "COLD-END"

The checksum of the header or of a run covers all its bytes before the checksum. The checksum of the footer
covers the index and the two numbers. The keys of a run ascend. Zlib or Zstandard packs the nodes (codec.py).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from xxhash import xxh3_64, xxh3_64_intdigest

from headrace.errors import HeadraceError
from headrace.persistence.cold import packed_nodes
from headrace.persistence.cold.codec import CODECS, Codec, CodecError

SUFFIX = ".cold"
MAGIC = b"HEADRACE-COLD"
FORMAT_VERSION = 1
RUN_TAG = b"RUN."
END_TAG = b"COLD-END"
FILE_BYTES_MAX = 64 << 20  # unless a single run is larger

HEADER_STRUCT = struct.Struct(">13sB2xQ")  # and its checksum
RUN_HEADER_STRUCT = struct.Struct(">4sB3xIQQ")
INDEX_ENTRY_STRUCT = struct.Struct(">QQQ")
FOOTER_COUNTS_STRUCT = struct.Struct(">QQ")
CHECKSUM_STRUCT = struct.Struct(">Q")
HEADER_BYTES = HEADER_STRUCT.size + CHECKSUM_STRUCT.size
RUN_OVERHEAD_BYTES = RUN_HEADER_STRUCT.size + CHECKSUM_STRUCT.size
FOOTER_BYTES = FOOTER_COUNTS_STRUCT.size + CHECKSUM_STRUCT.size + len(END_TAG)

Run = Sequence[tuple[bytes, bytes | bytearray]]  # keys and listpacks of adjacent nodes, in order


class DamagedBytes(HeadraceError):
    """Bytes that are not the expected part of a cold file. The caller knows in which file and where."""


class PackedRun(NamedTuple):
    """A run as it is stored (data, with its checksum), and what its compressed bytes stand for (raw)."""

    data: bytes
    checksum: int
    raw: bytes


class IndexEntry(NamedTuple):
    """Where a run is in its file, in bytes, and its checksum."""

    offset: int
    size: int
    checksum: int


def file_name(number: int) -> str:
    """Return the name of a cold file in its directory."""
    return f"{number}{SUFFIX}"


def file_number(name: str) -> int:
    """Return the number in the name of a cold file; 0 if it is not the name of one."""
    digits = name.removesuffix(SUFFIX)
    number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else 0
    return number if name == file_name(number) else 0


# ---- header


def header(number: int) -> bytes:
    """Return the header of the file with this number."""
    counted = HEADER_STRUCT.pack(MAGIC, FORMAT_VERSION, number)
    return counted + CHECKSUM_STRUCT.pack(xxh3_64_intdigest(counted))


def check_header(data: bytes, number: int) -> None:
    """Raise DamagedBytes if data is not the header of the file with this number."""
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        raise DamagedBytes("it does not begin as a cold file")
    _, version, stored = HEADER_STRUCT.unpack_from(data)
    if version != FORMAT_VERSION:
        raise DamagedBytes(f"format {version} is unknown; this version of Headrace reads {FORMAT_VERSION}")
    if data[:HEADER_BYTES] != header(stored):
        raise DamagedBytes("the header is damaged")
    if stored != number:
        raise DamagedBytes(f"it is the cold file number {stored}, not {number}")


# ---- runs


def pack_run(run: Run, codec: Codec) -> PackedRun:
    """Compress a run of one node or more, and return it as it is stored."""
    raw = packed_nodes.join(run)
    packed = codec.compress(raw)
    head = RUN_HEADER_STRUCT.pack(RUN_TAG, codec.number, len(run), len(raw), len(packed))
    state = xxh3_64(head)
    state.update(packed)
    checksum = state.intdigest()
    return PackedRun(b"".join([head, packed, CHECKSUM_STRUCT.pack(checksum)]), checksum, raw)


def stated_run_size(head: bytes) -> int:
    """Return the size of the run that begins with these bytes, as its header states it.

    Raises:
        DamagedBytes: if they are not the header of a run.
    """
    if len(head) < RUN_HEADER_STRUCT.size or not head.startswith(RUN_TAG):
        raise DamagedBytes("no run begins here")
    packed: int = RUN_HEADER_STRUCT.unpack_from(head)[-1]
    return RUN_OVERHEAD_BYTES + packed


def checked_run_checksum(data: bytes) -> int:
    """Return the checksum at the end of a run. Raises DamagedBytes if it does not match the bytes before."""
    if len(data) < RUN_OVERHEAD_BYTES:
        raise DamagedBytes("the file ends within the run")
    stored: int = CHECKSUM_STRUCT.unpack_from(data, len(data) - CHECKSUM_STRUCT.size)[0]
    with memoryview(data) as view:
        if xxh3_64_intdigest(view[: -CHECKSUM_STRUCT.size]) != stored:
            raise DamagedBytes("the checksum of the run is wrong")
    return stored


def unpack_run(data: bytes, checksum: int) -> list[tuple[bytes, bytearray]]:
    """Return the keys and listpacks of a stored run, which must have this checksum.

    The contents of listpacks are not checked, only their sizes.

    Raises:
        DamagedBytes: if it is damaged. No more is allocated than its bytes can stand for.
        MissingCodec: if the package to decompress it is not installed.
    """
    raw, nodes = decompress_run(data, checksum)
    try:
        return packed_nodes.split(raw, nodes)
    except ValueError as error:
        raise DamagedBytes(str(error)) from None


def decompress_run(data: bytes, checksum: int) -> tuple[bytes, int]:
    """Return the decompressed bytes of a stored run, and its number of nodes. Errors: see unpack_run()."""
    if checked_run_checksum(data) != checksum:
        raise DamagedBytes("another run is stored there")
    if stated_run_size(data) != len(data):
        raise DamagedBytes("the size of the run is wrong")
    _, number, nodes, raw_size, packed_size = RUN_HEADER_STRUCT.unpack_from(data)
    try:
        codec = CODECS.get(number)
        if not nodes * packed_nodes.NODE_BYTES_MIN <= raw_size <= packed_size * codec.ratio_max or not nodes:
            raise DamagedBytes(f"{packed_size} bytes cannot be {nodes} nodes of {raw_size} bytes")
        with memoryview(data) as view:
            return codec.decompress(view[RUN_HEADER_STRUCT.size : -CHECKSUM_STRUCT.size], raw_size), nodes
    except CodecError as error:
        raise DamagedBytes(f"the run cannot be decompressed: {error}") from None


# ---- index and footer


def index_and_footer(entries: Sequence[IndexEntry], offset: int) -> bytes:
    """Return the bytes of index and footer, which follow the runs at this offset of the file."""
    counted = b"".join(INDEX_ENTRY_STRUCT.pack(*entry) for entry in entries) + FOOTER_COUNTS_STRUCT.pack(
        offset, len(entries)
    )
    return counted + CHECKSUM_STRUCT.pack(xxh3_64_intdigest(counted)) + END_TAG


def index_size(runs: int) -> int:
    """Return the size of the index and the footer of a file with this number of runs, in bytes."""
    return INDEX_ENTRY_STRUCT.size * runs + FOOTER_BYTES


def index_offset(footer: bytes, file_size: int) -> int | None:
    """Return the offset of the index; None if the file has no index.

    Args:
        footer: the last FOOTER_BYTES of the file.

    Raises:
        DamagedBytes: if the offset in the footer is not possible.
    """
    if len(footer) < FOOTER_BYTES or not footer.endswith(END_TAG):
        return None
    offset: int
    runs: int
    offset, runs = FOOTER_COUNTS_STRUCT.unpack_from(footer)
    if not HEADER_BYTES <= offset <= file_size or offset + index_size(runs) != file_size:
        raise DamagedBytes("the footer does not fit the file")
    return offset


def parse_index(data: bytes) -> list[IndexEntry]:
    """Return the entries of an index that is followed by its footer. Raises DamagedBytes."""
    counted = len(data) - CHECKSUM_STRUCT.size - len(END_TAG)
    stored: int = CHECKSUM_STRUCT.unpack_from(data, counted)[0]
    with memoryview(data) as view:
        if xxh3_64_intdigest(view[:counted]) != stored:
            raise DamagedBytes("the checksum of the index is wrong")
        entries = view[: counted - FOOTER_COUNTS_STRUCT.size]
        return [IndexEntry(*entry) for entry in INDEX_ENTRY_STRUCT.iter_unpack(entries)]
