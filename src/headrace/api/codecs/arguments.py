"""Convert Python arguments to arguments of a request: names, IDs, range bounds and trim options."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from headrace.api.rules import Duration, checked_non_negative, duration_ms
from headrace.api.stream_id import StreamID
from headrace.errors import InvalidID, UsageError

IdLike: TypeAlias = StreamID | str | bytes | datetime
References: TypeAlias = Literal["keep", "delete", "acknowledged"]

REFERENCE_OPTION_BY_MODE = {"keep": b"KEEPREF", "delete": b"DELREF", "acknowledged": b"ACKED"}


def encode_name(word: str | bytes) -> bytes:
    """Return the name of a key, group or consumer as bytes. Raises UsageError if it is not str or bytes."""
    if isinstance(word, bytes):
        return word
    if isinstance(word, str):
        try:
            return word.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as wrong:
            raise UsageError(f"{word!r} cannot be written in UTF-8: {wrong.reason}") from None
    raise UsageError(f"not a name: {word!r}; pass str or bytes")


def decode_name(word: bytes) -> str:
    """Return a name as text that encode_name() converts back to the same bytes."""
    return word.decode("utf-8", "surrogateescape")


def to_stream_id(given: IdLike) -> StreamID:
    """Return the ID; for a datetime or milliseconds alone, the smallest one.

    Raises InvalidID for anything else.
    """
    if isinstance(given, StreamID):
        return given
    if isinstance(given, datetime):
        return StreamID.at(given)
    if isinstance(given, str | bytes):
        return StreamID.parse(given)
    raise InvalidID(f"not an entry ID: {given!r}; pass a StreamID, its text, or a datetime")


def range_start(given: IdLike | None) -> bytes:
    """Return the first ID of a range, inclusive."""
    return b"-" if given is None or given in ("-", b"-") else bytes(to_stream_id(given))


def range_end(given: IdLike | None) -> bytes:
    """Return the last ID of a range, inclusive.

    A datetime, or milliseconds alone, include the whole millisecond.
    """
    if given is None or given in ("+", b"+"):
        return b"+"
    id = to_stream_id(given)
    whole = isinstance(given, datetime) or (not isinstance(given, StreamID) and encode_name(given).isdigit())
    return b"%d" % id.ms if whole else bytes(id)


def xadd_id(given: IdLike) -> bytes:
    """Return the ID argument of XADD: `*`, an ID, or `ms-*`.

    A datetime becomes `ms-*`: the stream adds the sequence number.
    """
    if isinstance(given, datetime):
        return b"%d-*" % StreamID.at(given).ms
    if isinstance(given, str | bytes):
        word = encode_name(given)
        if word == b"*":
            return word
        if word.endswith(b"-*") and word[:-2].isdigit():
            return b"%d-*" % StreamID.parse(word[:-2]).ms
    return bytes(to_stream_id(given))


def count_argument(count: int) -> bytes:
    """Return the COUNT argument. Raises UsageError if it is not a non-negative integer."""
    return b"%d" % checked_non_negative("count", count, "; omit it for all entries")


def references_argument(references: References) -> bytes:
    """Return KEEPREF, DELREF or ACKED: what happens to the pending entries of deleted entries."""
    if references not in REFERENCE_OPTION_BY_MODE:
        raise UsageError(
            f"references={references!r}: must be one of {', '.join(map(repr, REFERENCE_OPTION_BY_MODE))}"
        )
    return REFERENCE_OPTION_BY_MODE[references]


def trim_arguments(maxlen: int | None, minid: IdLike | None, approximate: bool) -> list[bytes]:
    """Return the MAXLEN or MINID arguments, or an empty list. Raises UsageError if both are given."""
    about = b"~" if approximate else b"="
    if maxlen is not None and minid is not None:
        raise UsageError("maxlen and minid: pass only one of them")
    if maxlen is not None:
        return [b"MAXLEN", about, b"%d" % checked_non_negative("maxlen", maxlen)]
    if minid is not None:
        return [b"MINID", about, bytes(to_stream_id(minid))]
    return []


def xadd_options(
    maxlen: int | None,
    minid: IdLike | None,
    approximate: bool,
    references: References,
    idempotency: tuple[str | bytes, str | bytes] | None,
    create: bool,
) -> list[bytes]:
    """Return the options of XADD. Raises UsageError for an invalid value, or for maxlen with minid."""
    words = trim_arguments(maxlen, minid, approximate)
    if references != "keep":
        words.append(references_argument(references))
    if idempotency is not None:
        if not isinstance(idempotency, tuple) or len(idempotency) != 2 or not all(idempotency):
            raise UsageError(f"idempotency={idempotency!r}: must be (producer, request), two non-empty names")
        producer, request = map(encode_name, idempotency)
        words += [b"IDMP", producer, request]
    if not create:
        words.append(b"NOMKSTREAM")
    return words


def with_headrace_xadd_options(
    options: list[bytes], id: bytes, if_last: IdLike | None, delay: Duration | None, at: datetime | None
) -> list[bytes]:
    """Return `options` with IFLAST, or DELAY or DUE, which only Headrace servers have.

    Raises:
        UsageError: if a time is invalid, or a scheduled entry has an ID or other options.
    """
    if if_last is not None:
        options = [*options, b"IFLAST", bytes(to_stream_id(if_last))]
    if delay is None and at is None:
        return options
    if options or id != b"*":
        raise UsageError("delay and at cannot be combined with an ID or other options of add()")
    if delay is not None and at is not None:
        raise UsageError("delay and at: pass one of them")
    if at is not None:
        return [b"DUE", b"%d" % StreamID.at(at).ms]
    assert delay is not None
    return [b"DELAY", b"%d" % duration_ms(delay, "delay")]


def checked_replica_wait(count: int, seconds: float, timeout_name: str = "timeout") -> tuple[int, float]:
    """Return `count` and `seconds` if they are valid: how many replicas to wait for, and how long.

    Args:
        count: the number of replicas.
        seconds: the timeout.
        timeout_name: the name of the caller's argument for the timeout.

    Raises:
        UsageError: if one of the numbers is invalid.
    """
    if not (isinstance(count, int) and count > 0):
        raise UsageError(f"wait_replicas={count!r}: must be a number of replicas, 1 or more")
    if not seconds > 0:
        raise UsageError(f"{timeout_name}={seconds!r}: must be more than 0 seconds")
    return count, seconds
