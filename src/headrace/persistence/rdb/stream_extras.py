"""Extras: the parts of a stream that its RDB type cannot store, kept for Headrace's own reader.

In a file they are an auxiliary field just before the key, which other servers skip:

    FA "headrace-kept" string

In a DUMP payload they are between object and footer. They are written in the primitives of RDB:

    "HRK1" part ...                       each part at most once, in this order
    'u' groups: string name, string consumer, count, raw ID ...
                                          below type 27: these entries, in order of release, are
                                          unowned; the consumer is a placeholder
    'a' groups: string name, count, time ...
                                          below type 21: active times of the consumers, in byte order
    'o' groups: string name, count, raw ID ...
                                          the delivery order of entries with the same time, if it is
                                          not the order of their IDs
    'i' duration, maxsize, producers ...  below type 26: as type 26 writes it
    'r' count, word ...                   the rules of the stream: names and values, as XCFGSET has them
        groups: string name, count, word ...
                                          the rules of groups, as XGROUP CFGSET has them
    'l' groups: string name, passed + 1, lost unread, lost pending
                                          what groups have lost, if they have or seem to have lost any

groups is a count; groups without such data are left out, as are empty parts. DUMP payloads never contain
'a', 'o' or 'l', so that they equal those of a Redis server with the same history.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterator
from io import BytesIO

import cython

from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import DEFAULT_SETTINGS, Settings
from headrace.persistence.damage import Damaged
from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.stream_reader import read_producers
from headrace.persistence.rdb.stream_writer import placeholder_consumer, write_producers, write_unowned
from headrace.persistence.rdb.versions import TYPE_ACTIVE_TIMES, TYPE_IDEMPOTENCY, TYPE_UNOWNED, RdbVersion
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.streams.rules import (
    NO_GROUP_RULES,
    NO_STREAM_RULES,
    GroupRules,
    InvalidRule,
    Rules,
    StreamRules,
)
from headrace.streams.stream import Stream
from headrace.streams.stream_image import StreamImage

AUX_NAME = b"headrace-kept"
MAGIC = b"HRK1"
UNOWNED, ACTIVE, ORDER, PRODUCERS, RULES, LOSSES = b"uaoirl"
STEP_SLOTS = cython.declare(cython.Py_ssize_t, 1024)


def encode_extras(
    stream: Stream,
    version: RdbVersion,
    now_ms: int,
    settings: Settings = DEFAULT_SETTINGS,
    *,
    for_dump: bool = False,
) -> bytes | None:
    """Return what this version of the format cannot store of a stream; None if there is nothing.

    Args:
        settings: the settings of the keyspace that has the stream.
        for_dump: for a DUMP payload, which has no active times, delivery order or losses.
    """
    return run_extras_steps(extras_steps(stream.view_image(), version, now_ms, settings, for_dump=for_dump))


@cython.ccall
@cython.exceptval(-1, check=False)
def may_have_extras(image: StreamImage, settings: Settings) -> cython.bint:
    """Return False if the stream certainly has no extras, like most streams."""
    return len(image.groups) > 0 or _has_producers(image, settings) or image.rules is not None


def extras_steps(
    image: StreamImage, version: RdbVersion, now_ms: int, settings: Settings, *, for_dump: bool = False
) -> Generator[None, None, bytes | None]:
    """Do the same as encode_extras(), in steps; yield after each."""
    out = RdbOutput(None, False)
    groups = image.groups
    if version.stream_type < TYPE_UNOWNED:
        _put_groups(out, UNOWNED, [group for group in groups if group.pending.unowned_count], _put_unowned)
    if version.stream_type < TYPE_ACTIVE_TIMES and not for_dump:
        _put_groups(out, ACTIVE, [group for group in groups if _has_active_times(group)], _put_active_times)
    if not for_dump:
        unordered: dict[Group, array[int]] = {}
        for group in groups:
            slots = yield from _unordered_steps(group.pending)
            if slots:
                unordered[group] = slots
        _put_groups(
            out,
            ORDER,
            list(unordered),
            lambda out, group: _put_delivery_order(out, group.pending, unordered[group]),
        )
    if version.stream_type < TYPE_IDEMPOTENCY and _has_producers(image, settings):
        out.byte(PRODUCERS)
        write_producers(out, image, now_ms)
    _put_rules(out, image)
    if image.group_losses and not for_dump:
        _put_losses(out, image)
    return MAGIC + out.take() if out.offset() else None


def run_extras_steps(steps: Generator[None, None, bytes | None]) -> bytes | None:
    """Run the steps of extras_steps() to their end, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            extras: bytes | None = end.value
            return extras


def _has_active_times(group: Group) -> bool:
    """Return whether an active time differs from what a reader derives from the time seen."""
    return any(consumer.active_ms != consumer.seen_ms for consumer in group.consumers())


@cython.cfunc
@cython.exceptval(-1, check=False)
def _has_producers(image: StreamImage, settings: Settings) -> cython.bint:
    """Return whether the idempotency data differ from those of a new stream."""
    return (
        image.idempotency is not None
        or image.idmp_duration_s != settings.stream_idmp_duration
        or image.idmp_maxsize != settings.stream_idmp_maxsize
        or image.idmp_duration_s != DEFAULT_SETTINGS.stream_idmp_duration
        or image.idmp_maxsize != DEFAULT_SETTINGS.stream_idmp_maxsize
    )


def _put_groups(
    out: RdbOutput, kind: int, groups: list[Group], put: Callable[[RdbOutput, Group], None]
) -> None:
    if groups:
        out.byte(kind)
        out.length(len(groups))
        for group in groups:
            out.string(group.name)
            put(out, group)


def _put_unowned(out: RdbOutput, group: Group) -> None:
    out.string(placeholder_consumer(group))
    write_unowned(out, group.pending)


def _put_active_times(out: RdbOutput, group: Group) -> None:
    consumers = group.consumers()
    out.length(len(consumers))
    for consumer in consumers:
        out.time(consumer.active_ms)


def _put_delivery_order(out: RdbOutput, pending: PendingEntries, slots: array[int]) -> None:
    out.length(len(slots))
    for slot in slots:
        out.raw_id(pending.ms_of(slot), pending.seq_of(slot))


def _put_rules(out: RdbOutput, image: StreamImage) -> None:
    ruled = [group for group in image.groups if group.rules is not None]
    if image.rules is None and not ruled:
        return
    out.byte(RULES)
    _put_words(out, [] if image.rules is None else image.rules.to_arguments())
    out.length(len(ruled))
    for group in ruled:
        out.string(group.name)
        _put_words(out, group.rules.to_arguments() if group.rules is not None else [])


def _put_losses(out: RdbOutput, image: StreamImage) -> None:
    out.byte(LOSSES)
    out.length(len(image.group_losses))
    for name, passed, unread, pending in image.group_losses:
        out.string(name)
        for number in (passed + 1, unread, pending):
            out.length(number)


def _put_words(out: RdbOutput, words: list[bytes]) -> None:
    out.length(len(words))
    for word in words:
        out.string(word)


def _unordered_steps(pending: PendingEntries) -> Generator[None, None, array[int]]:
    """Return the slots, in delivery order, of owned entries of equal time that do not rise by ID."""
    found: array[int] = array("q")
    first: cython.Py_ssize_t = -1  # of the entries of one time
    rising: cython.bint = True
    time_ms: cython.longlong = 0
    ms: cython.ulonglong = 0
    seq: cython.ulonglong = 0
    visited: cython.Py_ssize_t = 0
    slot: cython.Py_ssize_t = pending.first_by_delivery()
    while slot >= 0:
        if pending.owner_of(slot) is not None:
            if first < 0 or pending.delivery_time_of(slot) != time_ms:
                if not rising:
                    yield from _collect_owned_slots(pending, first, slot, found)
                first = slot
                rising = True
                time_ms = pending.delivery_time_of(slot)
            elif pending.ms_of(slot) < ms or (pending.ms_of(slot) == ms and pending.seq_of(slot) < seq):
                rising = False
            ms = pending.ms_of(slot)
            seq = pending.seq_of(slot)
        slot = pending.next_by_delivery(slot)
        visited += 1
        if visited % STEP_SLOTS == 0:
            yield
    if not rising:
        yield from _collect_owned_slots(pending, first, -1, found)
    return found


def _collect_owned_slots(
    pending: PendingEntries, slot: cython.Py_ssize_t, end: cython.Py_ssize_t, found: array[int]
) -> Iterator[None]:
    """Append the slots of owned entries from slot to before end, in delivery order, to found."""
    while slot != end:
        if pending.owner_of(slot) is not None:
            found.append(slot)
            if len(found) % STEP_SLOTS == 0:
                yield
        slot = pending.next_by_delivery(slot)


# ---- reading


def is_extras(data: bytes) -> bool:
    """Return whether data begins like the result of encode_extras()."""
    return data.startswith(MAGIC)


def apply_extras(stream: Stream, data: bytes, keyspace: Keyspace) -> None:
    """Apply extras to a stream that was just read, and is to be put into keyspace.

    Raises ValueError for damaged data; a part of it may be applied then.
    """
    inp = RdbInput(BytesIO(data).read, checksum=False)
    try:
        if inp.raw(len(MAGIC)) != MAGIC:
            raise ValueError("it does not begin with the magic of extras")
        while inp.offset() < len(data):
            kind = inp.byte()
            if kind == UNOWNED:
                _take_groups(inp, stream, _take_unowned)
            elif kind == ACTIVE:
                _take_groups(inp, stream, _take_active_times)
            elif kind == ORDER:
                _take_groups(inp, stream, _take_delivery_order)
            elif kind == PRODUCERS:
                read_producers(inp, stream, keyspace)
            elif kind == RULES:
                _take_rules(inp, stream)
            elif kind == LOSSES:
                _take_groups(inp, stream, _take_losses)
                for group in stream.groups():
                    group.logged_lost_unread_count = stream.lost_unread_count(group)
            else:
                raise ValueError(f"the part {kind:#x} is not known here")
    except Damaged as damaged:
        raise ValueError(f"at byte {damaged.offset} of it: {damaged.what}") from None
    except InvalidRule as error:
        raise ValueError(f"an invalid rule: {error}") from None


def _take_groups(inp: RdbInput, stream: Stream, take: Callable[[RdbInput, Group], None]) -> None:
    for _ in range(inp.length()):
        name = inp.string()
        group = stream.group(name)
        if group is None:
            raise ValueError(f"the group {name!r} does not exist")
        take(inp, group)


def _take_unowned(inp: RdbInput, group: Group) -> None:
    owner = group.consumer(inp.string())
    if owner is None:
        raise ValueError(f"the placeholder consumer is not in the group {group.name!r}")
    for _ in range(inp.length()):
        slot = _take_slot(inp, group.pending, owner)
        group.pending.assign(slot, None, 0, group.pending.delivery_count_of(slot))
    if owner.pending_count:
        raise ValueError(f"the placeholder consumer of the group {group.name!r} owns entries")
    group.drop_consumer(owner)


def _take_active_times(inp: RdbInput, group: Group) -> None:
    consumers = group.consumers()
    there: cython.ulonglong = len(consumers)
    if inp.length() != there:
        raise ValueError(f"the active times do not match the consumers of the group {group.name!r}")
    for consumer in consumers:
        consumer.active_ms = inp.time()


def _take_delivery_order(inp: RdbInput, group: Group) -> None:
    pending = group.pending
    for _ in range(inp.length()):
        slot = _take_slot(inp, pending, None)
        pending.record_redelivery(slot, pending.delivery_time_of(slot), pending.delivery_count_of(slot))


def _take_rules(inp: RdbInput, stream: Stream) -> None:
    words = _take_words(inp, StreamRules)
    if words:
        stream.rules = NO_STREAM_RULES.with_changes(words)
    stream.may_have_rules = True
    _take_groups(inp, stream, _take_group_rules)


def _take_group_rules(inp: RdbInput, group: Group) -> None:
    group.set_rules(NO_GROUP_RULES.with_changes(_take_words(inp, GroupRules)))


def _take_losses(inp: RdbInput, group: Group) -> None:
    group.passed_count = inp.length() - 1
    group.lost_unread_base = inp.length()
    group.lost_pending_count = group.logged_lost_pending_count = inp.length()


def _take_words(inp: RdbInput, kind: type[Rules]) -> list[bytes]:
    words = [inp.string() for _ in range(inp.length())]
    unknown = [name for name in words[::2] if not kind.has_rule(name)]
    if unknown or len(words) % 2:
        raise ValueError(f"rules that are not known here: {words}")
    return words


def _take_slot(inp: RdbInput, pending: PendingEntries, owner: Consumer | None) -> int:
    """Read an ID and return its slot. It must belong to owner; None: to any consumer."""
    inp.raw_id()
    slot = pending.find(inp.ms, inp.seq)
    holder = pending.owner_of(slot) if slot >= 0 else None
    if holder is None or (owner is not None and holder is not owner):
        raise ValueError(f"{inp.ms}-{inp.seq} is not pending, or has another owner")
    return slot
