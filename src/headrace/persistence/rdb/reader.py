"""Read an RDB file: the snapshot of a whole keyspace.

REDIS0010 | VALKEY080                the magic, with the version in decimal
FA string string                     auxiliary field: name, value; any number, also between keys
F3 count, then: u32, module data     metadata of the next key, by modules; skipped or rejected
F5 string                            a library of functions
F7 length length length, module data of a module, for no key; skipped or rejected
FE length                            the keys that follow are of this database
FB length length                     number of keys, and of those that expire; a hint
F4 length length length              a hint about a cluster slot
FC i64 le ms | FD i32 le s           when the next key expires
F8 length | F9 byte                  LRU or LFU data of the next key; skipped
type byte, string, object            a key and its value
FF                                   the end, and the CRC-64 of all bytes before it; 0: not computed

Keys of types that Headrace does not hold are rejected, or skipped and counted: see foreign_types.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from headrace.errors import CommandError
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.library_header import parse_library
from headrace.persistence.damage import Damaged, ForeignDataError
from headrace.persistence.rdb import foreign_types, stream_extras
from headrace.persistence.rdb.file_checksum import start_checksum
from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.stream_reader import drop_expired_iids, is_stream_type, read_stream
from headrace.persistence.rdb.versions import TYPE_COLD
from headrace.streams.stream import Stream

CHECKSUM_SINCE = 5  # the first version with a checksum

KEY_METADATA = 0xF3
SLOT_HINT, FUNCTIONS, OLD_FUNCTIONS, MODULE_AUX = 0xF4, 0xF5, 0xF6, 0xF7
IDLE, FREQUENCY, AUX, SIZE_HINT = 0xF8, 0xF9, 0xFA, 0xFB
EXPIRES_MS, EXPIRES_S, DATABASE, END = 0xFC, 0xFD, 0xFE, 0xFF
STRING_TYPE = 0
FIRST_OPCODE = 0xF0
REPLICATION_ID_FIELD = b"repl-id"  # the field that names the history of replication


class ByteReader(Protocol):
    """A source of bytes."""

    def read(self, n: int, /) -> bytes:
        """Return up to n bytes; b"" at the end."""


@dataclass
class LoadedSnapshot:
    """What a snapshot contained: counts, and its auxiliary fields.

    key_count counts the keys put into the keyspace; expired_count, those that had expired and were dropped.
    """

    version: str = ""
    aux: dict[bytes, bytes] = field(default_factory=dict)
    key_count: int = 0
    expired_count: int = 0
    stream_count: int = 0
    string_count: int = 0
    entry_count: int = 0
    library_count: int = 0  # of function libraries
    skipped_library_count: int = 0  # of other languages than Lua
    skipped_key_counts: dict[str, int] = field(
        default_factory=dict
    )  # keys skipped, by the name of their type
    module_data_count: int = 0  # modules' data skipped, of keys and of none
    end_offset: int = 0  # the offset after the checksum


def read_rdb(
    source: ByteReader,
    keyspace: Keyspace,
    *,
    now_ms: int,
    keep_expired: bool = False,
    merge: bool = False,
    skip_foreign_types: bool = False,
    foreign_advice: str = "",
    progress: Callable[[int], None] | None = None,
) -> LoadedSnapshot:
    """Put all keys of source into keyspace, without events.

    Args:
        now_ms: Unix milliseconds. Keys that have expired by then are dropped.
        keep_expired: do not drop them. They are also kept if the snapshot names its position in a replication
            stream: replicas at that position have these keys, too.
        merge: replace keys that exist already.
        skip_foreign_types: skip and count keys of types that Headrace does not hold, and data of modules.
        foreign_advice: if those are not skipped, the advice in the error that they cause.
        progress: called about every MiB with the bytes read.

    Raises:
        Damaged: if the file is damaged. The keyspace then has a part of it.
        ForeignDataError: if it has types that Headrace does not hold, and they are not skipped. The keyspace
            then has a part of it, too.
    """
    file = _RdbFile(source, keyspace, progress)
    file.now_ms, file.keep_expired, file.merge = now_ms, keep_expired, merge
    file.skip_foreign_types, file.foreign_advice = skip_foreign_types, foreign_advice
    heard = keyspace.settings.notify_keyspace_events
    keyspace.settings.notify_keyspace_events = 0
    try:
        file.read()
    finally:
        keyspace.settings.notify_keyspace_events = heard
    return file.loaded


class _RdbFile:
    """Reads one file; holds the database and the expiry of the next key."""

    now_ms: int
    keep_expired: bool
    merge: bool
    skip_foreign_types: bool
    foreign_advice: str

    def __init__(
        self, source: ByteReader, keyspace: Keyspace, progress: Callable[[int], None] | None
    ) -> None:
        self.file_checksum = start_checksum(source)
        self.inp = RdbInput(source.read, checksum=self.file_checksum is None, progress=progress)
        self.keyspace = keyspace
        self.loaded = LoadedSnapshot()
        self.database = 0
        self.expires_ms: int | None = None  # of the next key
        self.kept: bytes | None = None  # the extras of the next key: see stream_extras.py

    def read(self) -> None:
        """Read the file from the magic to the checksum."""
        inp = self.inp
        version = self._read_version()
        opcode = inp.byte()
        while opcode != END:
            if opcode >= FIRST_OPCODE:
                self._opcode(opcode)
            else:
                self._load_key(opcode)
            opcode = inp.byte()
        if version >= CHECKSUM_SINCE:
            self._verify_checksum()
        self.loaded.end_offset = inp.offset()

    def _read_version(self) -> int:
        magic = self.inp.raw(9)
        for name, digits in ((b"REDIS", 4), (b"VALKEY", 3)):
            number = magic[len(name) :]
            if magic.startswith(name) and len(number) == digits and number.isdigit():
                self.loaded.version = magic.decode()
                if int(number) not in (range(1, 15) if name == b"REDIS" else (80,)):
                    raise ForeignDataError(0, f"a file of version {magic.decode()}, which is not known here")
                return int(number)
        raise Damaged(0, "not an RDB file: it does not begin with REDIS or VALKEY and a version")

    def _verify_checksum(self) -> None:
        inp = self.inp
        at = inp.offset()
        file_checksum = self.file_checksum
        computed = inp.checksum() if file_checksum is None else file_checksum.crc_up_to(at)
        written = int.from_bytes(inp.raw(8), "little")
        if written not in (0, computed):
            raise Damaged(at, f"the checksum says {written:016x}, the bytes before it give {computed:016x}")

    def _opcode(self, opcode: int) -> None:
        inp = self.inp
        at = inp.offset() - 1
        if opcode == EXPIRES_MS:
            self.expires_ms = inp.time()
        elif opcode == EXPIRES_S:
            seconds = inp.u32()
            self.expires_ms = 1000 * (seconds if seconds < 1 << 31 else seconds - (1 << 32))
        elif opcode == AUX:
            name, value = inp.string(), inp.string()
            if name == stream_extras.AUX_NAME:
                self.kept = value
            else:
                self.loaded.aux[name] = value
                self.keep_expired = self.keep_expired or name == REPLICATION_ID_FIELD
        elif opcode == DATABASE:
            self._select(inp.length(), at)
        elif opcode == SIZE_HINT:
            inp.length(), inp.length()
        elif opcode == SLOT_HINT:
            inp.length(), inp.length(), inp.length()
        elif opcode == IDLE:
            inp.length()
        elif opcode == FREQUENCY:
            inp.byte()
        elif opcode == FUNCTIONS:
            self._library(inp.string())
        elif opcode == MODULE_AUX or (opcode == KEY_METADATA and not self._is_valkey()):
            self._module_data(opcode, at)
        elif opcode == OLD_FUNCTIONS:
            raise ForeignDataError(at, "functions of a preview of Redis 7: headrace cannot read those")
        else:
            raise Damaged(at, f"the opcode {opcode:#x}, which is not known here")

    def _library(self, text: bytes) -> None:
        """Keep a library of functions, unless it is in another language."""
        try:
            name, _ = parse_library(text)
        except CommandError:
            self.loaded.skipped_library_count += 1
            return
        self.keyspace.libraries[name] = text
        self.loaded.library_count += 1

    def _module_data(self, opcode: int, at: int) -> None:
        """Skip data of modules, or reject them."""
        inp = self.inp
        if not self.skip_foreign_types:
            raise ForeignDataError(
                at, "data of a module: headrace cannot read those", advice=self.foreign_advice
            )
        if opcode == MODULE_AUX:
            inp.length(), inp.length(), inp.length()
            foreign_types.skip_module_data(inp)
        else:
            for _ in range(inp.length()):
                inp.u32()
                foreign_types.skip_module_data(inp)
        self.loaded.module_data_count += 1

    def _is_valkey(self) -> bool:
        return self.loaded.version.startswith("VALKEY")

    def _select(self, number: int, at: int) -> None:
        databases = len(self.keyspace.databases)
        if number >= databases:
            advice = f"set `databases` to {number + 1} or more" if number < 1 << 31 else ""
            raise Damaged(at, f"keys of the database {number}, there are {databases}", advice=advice)
        self.database = number

    def _load_key(self, kind: int) -> None:
        """Read a key of this type and put it into the keyspace."""
        inp, loaded = self.inp, self.loaded
        at = inp.offset() - 1
        if kind not in (STRING_TYPE, TYPE_COLD) and not is_stream_type(kind):
            self._skip_foreign_type_key(kind, at)
            return
        key = inp.string()
        value: bytes | Stream
        if kind == STRING_TYPE:
            value = inp.string()
        else:
            value = self._stream(kind, at)
        expires_ms, self.expires_ms, self.kept = self.expires_ms, None, None
        if expires_ms is not None and expires_ms <= self.now_ms and not self.keep_expired:
            loaded.expired_count += 1
            return
        loaded.key_count += 1
        if isinstance(value, Stream):
            loaded.stream_count += 1
            loaded.entry_count += value.length
        else:
            loaded.string_count += 1
        self._put(key, value, expires_ms, at)

    def _skip_foreign_type_key(self, kind: int, at: int) -> None:
        """Skip a key of a type that Headrace does not hold, or reject it."""
        name = foreign_types.TYPE_NAMES.get(kind)
        if name is None:
            raise Damaged(at, f"a value of the unknown type {kind}: headrace holds streams and strings only")
        if not self.skip_foreign_types:
            what = f"a key of the type {name!r}: headrace holds streams and strings only"
            raise ForeignDataError(at, what, advice=self.foreign_advice)
        self.inp.skip_string()
        foreign_types.skip_value(self.inp, kind, self._is_valkey())
        self.loaded.skipped_key_counts[name] = self.loaded.skipped_key_counts.get(name, 0) + 1
        self.expires_ms = self.kept = None

    def _stream(self, kind: int, at: int) -> Stream:
        stream = read_stream(self.inp, kind, self.keyspace)
        if self.kept is not None:
            try:
                stream_extras.apply_extras(stream, self.kept, self.keyspace)
            except ValueError as error:
                raise Damaged(at, f"the extras of the stream are damaged: {error}") from None
        drop_expired_iids(stream, self.now_ms)
        return stream

    def _put(self, key: bytes, value: bytes | Stream, expires_ms: int | None, at: int) -> None:
        database = self.keyspace.databases[self.database]
        if key in database.values and not self.merge:
            raise Damaged(at, f"the key {key!r} occurs twice in database {self.database}")
        database.put(key, value)
        if expires_ms is not None:
            database.set_expiry(key, expires_ms)
