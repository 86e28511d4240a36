"""Fuzz targets: payloads, snapshots, logs, and the structures inside them."""

from __future__ import annotations

import io
import re
from collections.abc import Hashable

from xxhash import xxh3_64_intdigest

from fuzz.driver import Target
from fuzz.recipes import WORDS, build
from fuzz.using import NOW, use
from headrace.engine.engine import Engine
from headrace.engine.replaying import Replayer
from headrace.errors import HeadraceError
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.cold import cold_file
from headrace.persistence.cold.codec import ZlibCodec
from headrace.persistence.cold.cold_file_check import check_cold_file
from headrace.persistence.crc64 import crc64
from headrace.persistence.damage import Damaged
from headrace.persistence.dump import BadPayload, WrongChecksum, dump, restore
from headrace.persistence.lzf import LzfCompressor
from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.versions import VERSIONS
from headrace.persistence.rdb.writer import write_rdb
from headrace.persistence.recovery import recover
from headrace.resp.request import bulk
from headrace.streams.stream import Stream
from headrace.structures import listpack_walk
from headrace.structures.listpack import Listpack
from headrace.structures.stream_id import StreamId

FOOTER = b"\x0e\x00"
NEWEST = VERSIONS[-1]
BETWEEN_FILES = b"\n====\n"
LYING = [
    b"\x81" + b"\xff" * 8,
    b"\x80\xff\xff\xff\xff",
    b"\x7f\xff",
    b"\xc3\x05\x80\x10\x00\x00\x00",
    b"\0",
    b"\xff",
]
OPCODES = [bytes([opcode]) for opcode in range(0xF0, 0x100)] + [b"\x0f", b"\x13", b"\x15", b"\x1a", b"\x1b"]
RECORDS = b"""*1 MULTI|*1 EXEC|*2 SELECT 1|*5 XADD s 1-1 f v|*5 XADD s 9-* f v|*3 XDEL s 1-1|*3 SET k v|
*5 XGROUP CREATE s g 0|*8 XCLAIM s g c 0 1-1 FORCE JUSTID|*2 DEL s|*4 XTRIM s MAXLEN 1|*3 XSETID s 5-5|
*3 RENAME s t|*3 PEXPIREAT s 1800000000000|*1 FLUSHALL|*6 XACKDEL s g DELREF IDS 1 1-1"""


def record(line: bytes) -> bytes:
    """A record of a log, from its words behind its number."""
    head, *words = line.split()
    return b"".join([head, b"\r\n", *map(bulk, words)])


# ---- payloads


def sealed(data: bytes) -> bytes:
    """The payload with the version and the checksum that make it one."""
    body = data[:-10] + FOOTER
    return body + crc64(body).to_bytes(8, "little")


def load(payload: bytes) -> set[Hashable]:
    """Restored, dumped, restored again, and used as streams are."""
    keyspace = Keyspace()
    value = restore(payload, keyspace, NOW)
    if not isinstance(value, Stream):
        return {("text", min(len(value), 9))}
    value.check()
    again = dump(value, NEWEST, compress=False, now_ms=NOW)
    other = restore(again, keyspace, NOW)
    assert isinstance(other, Stream)
    assert dump(other, NEWEST, compress=False, now_ms=NOW) == again
    groups = value.groups()
    found = {
        ("length", min(value.length, 5)),
        ("groups", len(groups)),
        ("remembers", value.idempotency is not None),
        *(("pending", min(group.pending.count, 4), len(group.consumers())) for group in groups),
    }
    use(other)
    use(value)
    return found


def load_recipe(data: bytes) -> set[Hashable]:
    """The payload that the words say: see recipes.py."""
    return load(sealed(build(data) + bytes(10)))


def load_node(data: bytes) -> set[Hashable]:
    """A stream of the nodes that the words say, and its length as it happens to be."""
    stream = Stream()
    inp = RdbInput(io.BytesIO(build(data)).read, checksum=False)
    nodes = 0
    while True:
        try:
            key, node = inp.string(), inp.string()
        except Damaged:
            break
        stream.append_stored_node(key, node)
        assert stream.tail is not None
        stream.tail.check()
        stream.length += stream.tail.live_count
        nodes += 1
    last = stream.last_entry_id() or StreamId(5, 5)
    stream.last_ms, stream.last_seq = last.ms, last.seq
    stream.entries_added = stream.length
    stream.update_first_id()
    stream.check()
    found = {(min(nodes, 3), min(stream.length, 4))}
    use(stream)
    return found


# ---- snapshots


def sealed_file(data: bytes) -> bytes:
    """The file with the right checksum at its end."""
    body = data[:-8]
    return body + crc64(body).to_bytes(8, "little")


def load_file(data: bytes) -> set[Hashable]:
    """Loaded, written, loaded again: the same to the byte. Every stream in it is sound."""
    keyspace = Keyspace()
    loaded = read_rdb(io.BytesIO(data), keyspace, now_ms=NOW)
    for database in keyspace.databases:
        for value in database.values.values():
            if isinstance(value, Stream):
                value.check()
    first, second = bytearray(), bytearray()
    write_rdb(keyspace, first.extend, version=VERSIONS[0], now_ms=NOW)
    other = Keyspace()
    read_rdb(io.BytesIO(first), other, now_ms=NOW)
    write_rdb(other, second.extend, version=VERSIONS[0], now_ms=NOW)
    assert first == second
    return {
        (loaded.version, loaded.key_count, loaded.expired_count > 0, loaded.stream_count, len(loaded.aux))
    }


def load_file_recipe(data: bytes) -> set[Hashable]:
    """The file that the words say, from magic to checksum."""
    return load_file(sealed_file(b"REDIS0012" + build(data) + b"\xff" + bytes(8)))


# ---- logs


class Source(io.BytesIO):
    """A file of Memory, to be read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.size = len(data)


class Tail:
    """A file of Memory, to be cut."""

    def __init__(self, files: dict[str, bytes], name: str) -> None:
        self.files = files
        self.name = name

    def truncate(self, size: int) -> None:
        """Keep the first bytes."""
        self.files[self.name] = self.files[self.name][:size]

    def sync(self) -> None:
        """Nothing lasts."""

    def close(self) -> None:
        """Nothing is open."""


class Memory:
    """The data directory of a log, in memory, as far as a start needs one."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def open_source(self, name: str) -> Source:
        """The file, to be read."""
        if name not in self.files:
            raise FileNotFoundError(name)
        return Source(self.files[name])

    def open_append(self, name: str) -> Tail:
        """The file, to be cut."""
        return Tail(self.files, name)

    def size(self, name: str) -> int:
        """How long it is."""
        return self.open_source(name).size

    def exists(self, name: str) -> bool:
        """Whether there is one."""
        return name in self.files

    def list(self, directory: str) -> list[str]:
        """The names in a directory."""
        return sorted(name.rpartition("/")[2] for name in self.files if name.startswith(f"{directory}/"))


def recover_log(data: bytes) -> set[Hashable]:
    """A manifest and the files behind it, in the order of their names; started once, and once more."""
    manifest, *contents = data.split(BETWEEN_FILES)
    names = LogFileNames()
    known = [names.base_name(1, True), names.incr_name(1), names.incr_name(2)]
    files = {names.manifest: manifest} | {
        names.path(name): content for name, content in zip(known, contents, strict=False)
    }
    states = []
    for _ in range(2):
        engine = Engine()
        found = recover(
            Memory(files),  # type: ignore[arg-type]
            names,
            engine.keyspace,
            Replayer(engine, NOW).replay,
            appendonly=True,
            dbfilename="dump.rdb",
            truncated_ok=True,
            now_ms=NOW,
        )
        for database in engine.keyspace.databases:
            for value in database.values.values():
                if isinstance(value, Stream):
                    value.check()
        state = bytearray()
        write_rdb(engine.keyspace, state.extend, version=NEWEST, now_ms=0)
        states.append(state)
    assert states[0] == states[1]
    return {
        (
            found.source_kind,
            len(found.files),
            min(found.command_count, 20),
            len(found.notes),
            min(found.key_count, 4),
        )
    }


def read_manifest(data: bytes) -> set[Hashable]:
    """Read, written, read again: the same."""
    found = Manifest.parse(data, "manifest")
    assert Manifest.parse(found.text()) == found
    return {(found.base is None, len(found.history), len(found.incrs), b'"' in found.text())}


# ---- cold files


class OneFile:
    """A data directory with one file, as far as a check of a cold file needs it; and that file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def open_random_access(self, name: str) -> OneFile:
        """The file."""
        return self

    def read_at(self, offset: int, n: int) -> bytes:
        """Its bytes."""
        assert offset >= 0 and 0 <= n <= len(self.data), "more is read than there is"
        return self.data[offset : offset + n]

    def size(self) -> int:
        """How long it is."""
        return len(self.data)

    def close(self) -> None:
        """Nothing is open."""


def sealed_cold_file(data: bytes) -> bytes:
    """The file with right checksums where its runs, its index and its header end."""
    file = bytearray(data)
    if len(file) >= cold_file.HEADER_BYTES:
        end = cold_file.HEADER_STRUCT.size
        file[end : end + 8] = xxh3_64_intdigest(bytes(file[:end])).to_bytes(8, "big")
    at = cold_file.HEADER_BYTES
    checksums = []
    while file[at : at + 4] == cold_file.RUN_TAG and len(file) - at >= cold_file.RUN_HEADER_STRUCT.size:
        end = at + cold_file.stated_run_size(bytes(file[at:])) - 8
        if end + 8 > len(file):
            break
        file[end : end + 8] = xxh3_64_intdigest(bytes(file[at:end])).to_bytes(8, "big")
        checksums.append(file[end : end + 8])
        at = end + 8
    if file.endswith(cold_file.END_TAG) and len(file) - at >= cold_file.FOOTER_BYTES:
        for i, checksum in enumerate(checksums):
            end = at + (i + 1) * cold_file.INDEX_ENTRY_STRUCT.size
            if end <= len(file) - cold_file.FOOTER_BYTES:
                file[end - 8 : end] = checksum
        end = len(file) - 8 - len(cold_file.END_TAG)
        file[end : end + 8] = xxh3_64_intdigest(bytes(file[at:end])).to_bytes(8, "big")
    return bytes(file)


def read_cold_file(data: bytes) -> set[Hashable]:
    """Checked as a whole; each run that was found is read, and packed again to the same nodes."""
    report = check_cold_file(OneFile(data), "cold/7.cold", 7)  # type: ignore[arg-type]
    nodes = 0
    for entry in report.readable_runs:
        run = cold_file.unpack_run(data[entry.offset : entry.offset + entry.size], entry.checksum)
        packed = cold_file.pack_run(run, ZLIB)
        assert cold_file.unpack_run(packed.data, packed.checksum) == run
        nodes += len(run)
    assert nodes == report.node_count and 0 <= report.tail_bytes <= len(data)
    damage = {re.sub("[0-9]+", "#", found.what) for found in report.damage}
    return {(report.sealed, min(len(report.readable_runs), 4), min(nodes, 9), report.tail_bytes > 0), *damage}


# ---- structures


def framed(data: bytes) -> bytes:
    """The listpack with its length at the head and its end at the end."""
    body = data[6:-1] or b""
    return (7 + len(body)).to_bytes(4, "little") + (data[4:6] + b"\0\0")[:2] + body + b"\xff"


def walk_listpack(data: bytes) -> set[Hashable]:
    """Checked, then read to both ends, then changed."""
    listpack_walk.validate_and_count(data)
    pack = Listpack.from_bytes(data)
    forwards, places, at = [], [], pack.first_at()
    while at >= 0:
        places.append(at)
        forwards.append(pack.get(at))
        at = pack.next_at(at)
    backwards, at = [], pack.last_at()
    while at >= 0:
        backwards.append(pack.get(at))
        at = pack.previous_at(at)
    assert forwards == backwards[::-1] and len(pack) == len(forwards)
    for at in reversed(places[:20]):
        pack.replace(at, b"12" if at % 2 else b"text")
    if places:
        pack.delete(pack.first_at())
    pack.append(b"x")
    pack.check()
    return {min(len(forwards), 9), *(data[place] >> 4 for place in places)}


def unpacked_size(data: bytes) -> int:
    """How many bytes the compressed bytes stand for, if they are sound; by the format's own words."""
    at = size = 0
    while at < len(data):
        head = data[at]
        if head < 32:
            at, size = at + 2 + head, size + 1 + head
        elif head >> 5 < 7:
            at, size = at + 2, size + 2 + (head >> 5)
        else:
            at, size = at + 3, size + 9 + (data[at + 1] if at + 1 < len(data) else 0)
    return size


def unpack(data: bytes) -> set[Hashable]:
    """Compressed bytes, said to be as long as they are, or (by the first byte) a little more or less."""
    packed = data[1:]
    size = max(0, unpacked_size(packed) + {0: 1, 1: -1, 2: 1000}.get(data[0] if data else 9, 0))
    head = RdbOutput(None, False)
    head.byte(0xC3)
    head.length(len(packed))
    head.length(size)
    text = RdbInput(io.BytesIO(head.take() + packed).read, checksum=False).string()
    assert len(text) == size == unpacked_size(packed)
    out = RdbOutput(None, True, LzfCompressor())
    out.string(text)
    assert RdbInput(io.BytesIO(out.take()).read, checksum=False).string() == text
    return {(min(size, 300) // 10, packed[:1])}


RECIPE_WORDS = [b" " + word.encode() + b" " for word in WORDS.split()]
FILE_WORDS = [b" b%d " % opcode for opcode in range(0xF0, 0x100)] + [b" b0 ", b" sheadrace-kept "]
LOG_WORDS = [*(record(line) for line in RECORDS.split(b"|")), BETWEEN_FILES, b"#TS:1\r\n"]
LINES = [b"file %c seq %d type %c\n" % line for line in ((97, 1, 98), (98, 2, 105), (104, 1, 104))]
MANIFEST_WORDS = [*LINES, b"\n", b'"\\x2f"', b"/", b"#x\n"]
ELEMENTS = [
    b"\x81x\x02",
    b"\xf1\1\0\3",
    b"\xf4" + bytes(8) + b"\x09",
    b"\xf0\1\0\0\0x\6",
    b"\x81\x01",
    b"\5\1",
]
ITEMS = [b"\x20\x00", b"\xe0\x00\x00", b"\xe0\xff\x00", b"\x00a", b"\x1f" + b"a" * 32, b"\xff\xff\xff"]
COLD_WORDS = [cold_file.RUN_TAG, cold_file.END_TAG, *(bytes([0] * 7 + [n]) for n in (1, 2, 7, 40, 255))]
ZLIB = ZlibCodec()
REFUSED_PAYLOAD = (BadPayload, WrongChecksum)
BOTH_WORDS = RECIPE_WORDS + FILE_WORDS
TARGETS = [
    Target("dump", load, REFUSED_PAYLOAD, LYING + OPCODES, sealed, (60, 600)),
    Target("stream", load_recipe, REFUSED_PAYLOAD, RECIPE_WORDS, executions=(60, 500), size_max=3000),
    Target("node", load_node, (ValueError,), RECIPE_WORDS, executions=(80, 600)),
    Target("rdb", load_file, (Damaged,), LYING + OPCODES, sealed_file, (300, 3000), 3000),
    Target("snapshot", load_file_recipe, (Damaged,), BOTH_WORDS, executions=(200, 1500), size_max=3000),
    Target("log", recover_log, (HeadraceError,), LOG_WORDS, executions=(150, 1000), size_max=3000),
    Target("manifest", read_manifest, (Damaged,), MANIFEST_WORDS, executions=(3000, 8000)),
    Target("listpack", walk_listpack, (ValueError,), ELEMENTS, framed, (2000, 15000), 400),
    Target("cold", read_cold_file, (), COLD_WORDS, sealed_cold_file, (800, 5000)),
    Target("lzf", unpack, (Damaged,), ITEMS, executions=(1500, 15000), size_max=400),
]
