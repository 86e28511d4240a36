"""Write a keyspace as the commands that create it: the base of a log as text (aof-use-rdb-preamble no).

    FUNCTION LOAD "#!lua name=mylib ..."                            each library of functions
    XADD s 1-1 a 1 b 2                                              each live entry
    XSETID s 4-0 ENTRIESADDED 5 MAXDELETEDID 3-0
    XGROUP CREATE s g 1-1 ENTRIESREAD 1                             each group; of its pending entries:
    XCLAIM s g ann 0 1-1 TIME 1600000000000 RETRYCOUNT 3 JUSTID FORCE   each that has an owner
    XGROUP CREATECONSUMER s g idle                                  each consumer that owns none
    XNACK s g FAIL IDS 2 1-2 1-3 RETRYCOUNT 1 FORCE                 runs of unowned entries
    XCFGSET s IDMP-DURATION 50 IDMP-MAXSIZE 9                       if it differs from the defaults
    XIDMPRECORD s pid iid 4-0                                       each remembered request
    PUBLISH headrace:rules "... XCFGSET s MAX-LEN 1000 ..."         rules of the stream and its groups
    PUBLISH headrace:rules "... XGROUP SETID s g 1-1 ... LOSSES 1 5 2"  what groups have lost
    PEXPIREAT s 4102444800000

XCLAIM and XNACK need the entry, but a pending entry may be deleted. For a stream with such entries the groups
come first: placeholder entries are added for all pending IDs, claimed, and trimmed, which keeps them pending.
Then the last ID is set back to 0-0, and the real entries follow. If the stream changes meanwhile, entries
cannot be looked up: then every stream with pending entries is written in this form.

    XADD s 1-1 x y                                                  each ID that is pending in any group
    XGROUP CREATE s g 0-0 … XCLAIM … XGROUP CREATECONSUMER … XNACK …
    XTRIM s MAXLEN 0
    XSETID s 0-0
    XADD s 1-1 a 1 b 2 … XSETID s 4-0 …                             as above
    XGROUP SETID s g 1-1 ENTRIESREAD 1

Claims are in the order of delivery, so that entries with equal times keep that order. This form does not
store when consumers were last seen and active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge

import cython

from headrace import mem
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.keyspace_image import DatabaseImage, KeyspaceImage
from headrace.keyspace.settings import DEFAULT_SETTINGS, Settings
from headrace.persistence.aof.log_buffer import LogBuffer
from headrace.persistence.rule_records import rule_record
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.node_walk import EntryWalk
from headrace.streams.pending import PendingEntries
from headrace.streams.stream_image import StreamImage
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
PIECE_BYTES = cython.declare(cython.Py_ssize_t, 64 * 1024)  # per write
PROGRESS_BYTES = cython.declare(cython.Py_ssize_t, 1024 * 1024)  # between two calls of progress
NACKED_PER_COMMAND = cython.declare(cython.Py_ssize_t, 64)


def write_commands(
    keyspace: Keyspace,
    write: Callable[[memoryview], object],
    now_ms: int,
    timestamps: bool = False,
    checksums: bool = True,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write the whole keyspace as records of a log; return the number of bytes.

    Args:
        write: gets about 64 KiB at a time and must write all of it; it may raise.
        timestamps: begin with a line with the time.
        checksums: end each piece with its checksum.
        progress: called about every MiB with the bytes written so far.
    """
    total: cython.Py_ssize_t = 0
    reported: cython.Py_ssize_t = 0
    for total in command_steps(keyspace.view(now_ms), write, timestamps, checksums):
        if progress is not None and total - reported >= PROGRESS_BYTES:
            reported = total
            progress(total)
    return total


def command_steps(
    image: KeyspaceImage,
    write: Callable[[memoryview], object],
    timestamps: bool = False,
    checksums: bool = True,
) -> Iterator[int]:
    """Like write_commands(), in steps of about image.walk_step_bytes; yield the number of bytes so far.

    It yields at least once, at the end. Other work can be done between two steps if
    Keyspace.freeze() has made the image.
    """
    out: LogBuffer = LogBuffer()
    total: cython.Py_ssize_t = 0
    piece: cython.Py_ssize_t = min(PIECE_BYTES, image.walk_step_bytes)
    database: DatabaseImage
    out.begin_commit(checksums)
    if timestamps:
        out.put_timestamp(image.now_ms)
    for text in image.libraries:
        out.put(0, [b"FUNCTION", b"LOAD", text])
    for database in image.databases:
        while (key := database.next_key()) is not None:
            value = database.take_value(key)
            valid = isinstance(value, StreamImage) and value.is_frozen()
            for words in key_commands(key, value, database.expiry_of(key), image):
                out.put(database.index, words)
                if out.size() >= piece:
                    total += _flush(out, write)
                    if valid:
                        yield total
            if out.size() >= piece:
                total += _flush(out, write)
                yield total
    yield total + _flush(out, write)


@cython.cfunc
def _flush(out: LogBuffer, write: Callable[[memoryview], object]) -> cython.Py_ssize_t:
    """Write the commit, and begin the next one; return the bytes written."""
    out.end_commit()
    n: cython.Py_ssize_t = out.size()
    with out.view() as piece:
        write(piece)
    out.clear()
    out.begin_commit(out.checksummed)
    return n


def commands_of(keyspace: Keyspace, now_ms: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (database, words) of each command; keys that have expired at now_ms (Unix ms) are left out."""
    image = keyspace.view(now_ms)
    database: DatabaseImage
    for text in image.libraries:
        yield 0, [b"FUNCTION", b"LOAD", text]
    for database in image.databases:
        while (key := database.next_key()) is not None:
            for words in key_commands(key, database.take_value(key), database.expiry_of(key), image):
                yield database.index, words


def key_commands(key: bytes, value: object, dies_at: int, image: KeyspaceImage) -> Iterator[list[bytes]]:
    """Yield the commands that create the key; none if it has expired."""
    if 0 <= dies_at <= image.now_ms:
        return
    if isinstance(value, StreamImage):
        yield from stream_commands(key, value, image.settings)
    elif isinstance(value, (bytes, bytearray)):
        yield [b"SET", key, bytes(value)]
    if dies_at >= 0:
        yield [b"PEXPIREAT", key, b"%d" % dies_at]


def stream_commands(key: bytes, stream: StreamImage, settings: Settings) -> Iterator[list[bytes]]:
    """Yield the commands that create the stream. The key must not exist where they are executed."""
    group: Group
    held: cython.bint = may_have_deleted_pending(stream)
    if held:
        for word in pending_ids(stream):
            yield [b"XADD", key, word, b"x", b"y"]
        for group in stream.groups:
            yield [b"XGROUP", b"CREATE", key, group.name, b"0-0"]
            yield from consumer_commands(key, group)
        yield [b"XTRIM", key, b"MAXLEN", b"0"]
        yield [b"XSETID", key, b"0-0"]
    elif stream.length == 0:
        yield [b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]
    yield from entry_commands(key, stream)
    yield set_id_command(key, stream)
    for group in stream.groups:
        last: bytes = stream_id.text_of(group.last_ms, group.last_seq)
        read: list[bytes] = [b"ENTRIESREAD", b"%d" % group.entries_read]
        if held:
            yield [b"XGROUP", b"SETID", key, group.name, last, *read]
        else:
            yield [b"XGROUP", b"CREATE", key, group.name, last, *read]
            yield from consumer_commands(key, group)
    yield from producer_commands(key, stream, settings)
    yield from rule_commands(key, stream)
    yield from loss_commands(key, stream)


def rule_commands(key: bytes, stream: StreamImage) -> Iterator[list[bytes]]:
    """Yield the records (see rule_records.py) of the rules of the stream and its groups."""
    group: Group
    if stream.rules is not None:
        yield rule_record([b"XCFGSET", key, *stream.rules.to_arguments()])
    for group in stream.groups:
        if group.rules is not None:
            yield rule_record([b"XGROUP", b"CFGSET", key, group.name, *group.rules.to_arguments()])


def loss_commands(key: bytes, stream: StreamImage) -> Iterator[list[bytes]]:
    """Yield the records (see rule_records.py) of the entries that groups have lost."""
    groups = {group.name: group for group in stream.groups}
    for name, *losses in stream.group_losses:
        last = stream_id.text_of(groups[name].last_ms, groups[name].last_seq)
        words = [b"XGROUP", b"SETID", key, name, last, b"ENTRIESREAD", b"%d" % groups[name].entries_read]
        yield rule_record([*words, b"LOSSES", *(b"%d" % number for number in losses)])


def entry_commands(key: bytes, stream: StreamImage) -> Iterator[list[bytes]]:
    """Yield an XADD for each live entry."""
    walk: EntryWalk
    while stream.next_node():
        walk = EntryWalk(stream.copy_node())
        while walk.next():
            if not walk.deleted:
                words: list[bytes] = [b"XADD", key, stream_id.text_of(walk.ms, walk.seq)]
                while walk.next_field_or_value():
                    words.append(walk.piece())
                yield words


@cython.cfunc
def set_id_command(key: bytes, stream: StreamImage) -> list[bytes]:
    """Return the command that sets the last ID and the counters."""
    count: cython.longlong = mem.as_signed(stream.entries_added)
    added: bytes = stream_id.format_decimal(I64_MAX if count < 0 else count)
    deleted: bytes = stream_id.text_of(stream.max_deleted_ms, stream.max_deleted_seq)
    last: bytes = stream_id.text_of(stream.last_ms, stream.last_seq)
    return [b"XSETID", key, last, b"ENTRIESADDED", added, b"MAXDELETEDID", deleted]


@cython.cfunc
def may_have_deleted_pending(stream: StreamImage) -> cython.bint:
    """Return whether a pending entry of a group is, or may be, deleted from the stream.

    True if the image is frozen and any entry is pending: entries of such an image cannot be looked up.
    """
    group: Group
    pending: PendingEntries
    slot: cython.Py_ssize_t
    frozen: cython.bint = stream.is_frozen()
    for group in stream.groups:
        pending = group.pending
        slot = pending.first_by_id_from(0, 0)
        while slot >= 0:
            if frozen or not stream.contains(pending.ms_of(slot), pending.seq_of(slot)):
                return True
            slot = pending.next_by_id(slot)
    return False


def pending_ids(stream: StreamImage) -> Iterator[bytes]:
    """Yield every ID that is pending in any group, in order."""
    previous: tuple[int, int] | None = None
    for entry in merge(*[ids_of(group.pending) for group in stream.groups]):
        if entry != previous:
            yield stream_id.text_of(entry[0], entry[1])
        previous = entry


def ids_of(pending: PendingEntries) -> Iterator[tuple[int, int]]:
    """Yield the IDs of the entries as (ms, seq), in order."""
    slot: cython.Py_ssize_t = pending.first_by_id_from(0, 0)
    while slot >= 0:
        yield pending.ms_of(slot), pending.seq_of(slot)
        slot = pending.next_by_id(slot)


def consumer_commands(key: bytes, group: Group) -> Iterator[list[bytes]]:
    """Yield claims of owned entries in delivery order, consumers without entries, and unowned entries."""
    pending: PendingEntries = group.pending
    consumer: Consumer
    owner: Consumer | None
    slot: cython.Py_ssize_t = pending.first_by_delivery()
    unowned: list[list[bytes]] = []
    while slot >= 0:
        word: bytes = stream_id.text_of(pending.ms_of(slot), pending.seq_of(slot))
        count: bytes = stream_id.format_decimal(pending.delivery_count_of(slot))
        owner = pending.owner_of(slot)
        if owner is None:
            unowned.append([word, count])
        else:
            time: bytes = stream_id.format_decimal(pending.delivery_time_of(slot))
            words: list[bytes] = [b"XCLAIM", key, group.name, owner.name, b"0", word]
            yield [*words, b"TIME", time, b"RETRYCOUNT", count, b"JUSTID", b"FORCE"]
        slot = pending.next_by_delivery(slot)
    for consumer in group.preserved_consumers():
        if consumer.pending_count == 0:
            yield [b"XGROUP", b"CREATECONSUMER", key, group.name, consumer.name]
    yield from nack_commands(key, group, unowned)


def nack_commands(key: bytes, group: Group, unowned: list[list[bytes]]) -> Iterator[list[bytes]]:
    """Yield a command for each run of unowned entries with equal counts, of NACKED_PER_COMMAND at most.

    unowned: the ID and the count of each entry, in order of release.
    """
    run: list[bytes] = []
    at: cython.Py_ssize_t
    for at in range(len(unowned)):
        word, count = unowned[at]
        run.append(word)
        last: cython.bint = at + 1 == len(unowned) or unowned[at + 1][1] != count
        if last or len(run) == NACKED_PER_COMMAND:
            words: list[bytes] = [b"XNACK", key, group.name, b"FAIL", b"IDS", b"%d" % len(run), *run]
            yield [*words, b"RETRYCOUNT", count, b"FORCE"]
            run = []


def producer_commands(key: bytes, stream: StreamImage, settings: Settings) -> Iterator[list[bytes]]:
    """Yield the commands for the remembered idempotent requests and their settings.

    Redis rejects XIDMPRECORD of a deleted entry, and goes on loading. It also rejects the XCFGSET that sets
    the lifetime counters: Headrace accepts that one only from a log.
    """
    duration: cython.longlong = stream.idmp_duration_s
    maxsize: cython.longlong = stream.idmp_maxsize
    one: Settings
    for one in (settings, DEFAULT_SETTINGS):
        if duration != one.stream_idmp_duration or maxsize != one.stream_idmp_maxsize:
            yield [b"XCFGSET", key, b"IDMP-DURATION", b"%d" % duration, b"IDMP-MAXSIZE", b"%d" % maxsize]
            break
    memory: IdempotencyStore | None = stream.idempotency
    if memory is None:
        return
    items: list[tuple[bytes, bytes, StreamId]] = memory.items()
    for pid, iid, entry in items:
        yield [b"XIDMPRECORD", key, pid, iid, entry.text()]
    added: cython.longlong = mem.as_signed(memory.added_count)
    duplicates: cython.longlong = mem.as_signed(memory.duplicate_count)
    if added != len(items) or duplicates > 0:
        words: list[bytes] = [b"XCFGSET", key, b"IIDS-ADDED", stream_id.format_decimal(added)]
        yield [*words, b"IIDS-DUPLICATES", stream_id.format_decimal(duplicates)]
