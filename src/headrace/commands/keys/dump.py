"""DUMP and RESTORE: a value as one string that Redis and its relatives accept, and back.

    type byte | the value as in a snapshot | version, 2 bytes | CRC-64 of everything before it, 8 bytes

Key and expiry are not included. The effect of RESTORE is a RESTORE with an absolute expiry and ABSTTL, or DEL
if that time has passed.
"""

from __future__ import annotations

from headrace.commands import dead_letter_rules, strict_rules
from headrace.commands.arguments import Arguments, parse_i64
from headrace.commands.call import Call
from headrace.commands.keys import expire, rename
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax
from headrace.keyspace import keyspace
from headrace.persistence.dump import BadPayload, WrongChecksum, dump, restore
from headrace.streams.stream import Stream

I64_MAX = (1 << 63) - 1
FREQUENCY_MAX = 255


class BusyKey(CommandError):
    text = "BUSYKEY Target key name already exists."


class BadTtl(CommandError):
    text = "ERR Invalid TTL value, must be >= 0"


class BadIdleTime(CommandError):
    text = "ERR Invalid IDLETIME value, must be >= 0"


class BadFrequency(CommandError):
    text = "ERR Invalid FREQ value, must be >= 0 and <= 255"


class WrongPayload(CommandError):
    text = "ERR DUMP payload version or checksum are wrong"


class BadData(CommandError):
    text = "ERR Bad data format"


class PayloadLargerThanMemory(CommandError):
    """The payload of a stream would be larger than the limit for data in memory, or for one string."""

    def __init__(self, size: int, limit: int, names: str) -> None:
        super().__init__(
            f"ERR the stream takes {size} bytes with what is in files, which is more than {names} ({limit}):"
            " read it with XRANGE, or copy all data with `headrace export`"
        )


def check_payload_size(call: Call, value: object) -> None:
    """Raise PayloadLargerThanMemory for a stream with cold runs that is too large for a payload."""
    if not isinstance(value, Stream) or value.cold is None or value.cold.totals.run_count == 0:
        return
    size = value.memory.total + value.cold.totals.bytes_if_loaded
    cold = call.keyspace.cold_storage
    if cold.hot_bytes_limit and size > cold.hot_bytes_limit + cold.cache.limit:
        limit = cold.hot_bytes_limit + cold.cache.limit
        raise PayloadLargerThanMemory(size, limit, "stream-hot-memory and cold-cache-memory together")
    ((_, bulk_max),) = call.server.config_get([b"proto-max-bulk-len"])
    if size > int(bulk_max):
        raise PayloadLargerThanMemory(size, int(bulk_max), "proto-max-bulk-len")


def payload_of(call: Call, value: object) -> bytes:
    """Return the payload that DUMP replies with. Raises PayloadLargerThanMemory."""
    check_payload_size(call, value)
    return dump(
        value,
        call.server.rdb_version(),
        compress=call.server.rdb_compression(),
        now_ms=call.now,
        settings=call.keyspace.settings,
    )


def run_dump(call: Call) -> None:
    """DUMP: reply with the serialized value, or null if the key does not exist."""
    value = call.database.find(call.argv[1])
    if value is None:
        call.reply.null()
    else:
        call.reply.bulk(payload_of(call, value))


def parse_restore_options(call: Call) -> tuple[bool, bool]:
    """Return whether REPLACE and ABSTTL are given. IDLETIME and FREQ are checked, but not stored."""
    arguments: Arguments = call.arguments()
    arguments.at += 3
    replace = absolute = idle = frequency = False
    while arguments.has_more():
        if arguments.take_flag(b"REPLACE"):
            replace = True
        elif arguments.take_flag(b"ABSTTL"):
            absolute = True
        elif not frequency and arguments.take_option(b"IDLETIME"):
            if arguments.next_integer() < 0:
                raise BadIdleTime()
            idle = True
        elif not idle and arguments.take_option(b"FREQ"):
            if not 0 <= arguments.next_integer() <= FREQUENCY_MAX:
                raise BadFrequency()
            frequency = True
        else:
            raise InvalidSyntax()
    return replace, absolute


def restore_expiry_ms(call: Call, absolute: bool) -> int:
    """Return when the key will expire, in milliseconds since 1970; -1: never (a ttl of 0). Raises BadTtl."""
    ttl = parse_i64(call.argv[2])
    if ttl < 0:
        raise BadTtl()
    if ttl == 0:
        return -1
    return ttl if absolute else min(ttl + call.now, I64_MAX)


def value_of_payload(call: Call) -> object:
    """Return the value in the payload. Raises WrongPayload or BadData."""
    try:
        return restore(call.argv[3], call.keyspace, call.now)
    except WrongChecksum:
        raise WrongPayload() from None
    except BadPayload:
        raise BadData() from None


def run_restore(call: Call) -> None:
    """RESTORE: store the value of the payload, with its expiry. Every byte is checked."""
    replace, absolute = parse_restore_options(call)
    key = call.argv[1]
    former = call.database.find(key)
    if former is not None and not replace:
        raise BusyKey()
    moment = restore_expiry_ms(call, absolute)
    value = value_of_payload(call)
    dead_letter_rules.check_value_to_store(call, call.database, key, value)
    strict_rules.check_key_removal(call, call.database, key)
    if moment >= 0:
        strict_rules.check_expiry(call, key, value)
    if 0 <= moment <= call.now and not call.replayed():
        expire.remove_key(call, key)  # the new value has expired already
    else:
        former_type = keyspace.type_name(former)
        rename.put_with_expiry(call.database, key, value, moment)
        call.notify("g", b"restore", key)
        rename.notify_overwritten(call.database, key, former_type, value)
        record_restore(call, moment, absolute)
    call.reply.ok()


def record_restore(call: Call, moment: int, absolute: bool) -> None:
    """Record the RESTORE with its expiry as an absolute time."""
    if moment < 0 or absolute:
        call.record_verbatim()
    elif call.effects.recording:
        call.record([*call.argv[:2], b"%d" % moment, *call.argv[3:], b"ABSTTL"])


COMMANDS = [
    Command(
        "dump",
        2,
        run_dump,
        "readonly",
        keys="1: RO access",
        tips="nondeterministic_output",
        since="2.6.0",
        summary="Returns a value as one string, for RESTORE.",
        syntax="key",
        complexity="O(N), N being the bytes of the value",
    ),
    Command(
        "restore",
        -4,
        run_restore,
        "write denyoom schedules",
        keys="1: OW update",
        since="2.6.0",
        summary="Creates a key from a string returned by DUMP.",
        syntax="key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
        complexity="O(N), N being the bytes of the value, all of which are checked",
        categories="dangerous",
    ),
]
