"""From what a Python program says to the words of a request: IDs, bounds of ranges, and how to trim."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from headrace.api.stream_id import StreamID
from headrace.errors import InvalidID, UsageError

IdLike: TypeAlias = StreamID | str | bytes | datetime
References: TypeAlias = Literal["keep", "delete", "acknowledged"]

REFERENCES = {"keep": b"KEEPREF", "delete": b"DELREF", "acknowledged": b"ACKED"}


def name_of(word: str | bytes) -> bytes:
    """A key's, a group's or a consumer's name. UsageError for what is none."""
    if isinstance(word, bytes):
        return word
    if isinstance(word, str):
        try:
            return word.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as wrong:
            raise UsageError(f"{word!r} cannot be written in UTF-8: {wrong.reason}") from None
    raise UsageError(f"{word!r} is no name: give str or bytes")


def shown(word: bytes) -> str:
    """A name as text, from which name_of() makes the same bytes again."""
    return word.decode("utf-8", "surrogateescape")


def id_of(given: IdLike) -> StreamID:
    """The ID; of a moment, or of milliseconds alone, the smallest. InvalidID for anything else."""
    if isinstance(given, StreamID):
        return given
    if isinstance(given, datetime):
        return StreamID.at(given)
    if isinstance(given, str | bytes):
        return StreamID.parse(given)
    raise InvalidID(f"{given!r} is no entry's ID: give a StreamID, its text, or a datetime")


def start_word(given: IdLike | None) -> bytes:
    """The first ID of a range, itself included."""
    return b"-" if given is None or given in ("-", b"-") else bytes(id_of(given))


def end_word(given: IdLike | None) -> bytes:
    """The last ID of a range, itself included; of a moment, or of milliseconds alone, all the millisecond."""
    if given is None or given in ("+", b"+"):
        return b"+"
    id = id_of(given)
    whole = isinstance(given, datetime) or (not isinstance(given, StreamID) and name_of(given).isdigit())
    return b"%d" % id.ms if whole else bytes(id)


def new_id_word(given: IdLike) -> bytes:
    """The ID that an entry is to get: `*` leaves it to the stream, `ms-*` or a datetime its second half."""
    if isinstance(given, datetime):
        return b"%d-*" % StreamID.at(given).ms
    if isinstance(given, str | bytes):
        word = name_of(given)
        if word == b"*":
            return word
        if word.endswith(b"-*") and word[:-2].isdigit():
            return b"%d-*" % StreamID.parse(word[:-2]).ms
    return bytes(id_of(given))


def count_word(count: int) -> bytes:
    """How many entries at most; UsageError for what is no number, or a negative one."""
    if not isinstance(count, int) or count < 0:
        raise UsageError(f"a count of {count!r}? It is how many entries at most; leave it out for all")
    return b"%d" % count


def references_word(references: References) -> bytes:
    """What becomes of the references that groups hold to what is deleted."""
    if references not in REFERENCES:
        raise UsageError(f"references={references!r}: it is one of {', '.join(map(repr, REFERENCES))}")
    return REFERENCES[references]


def trim_words(maxlen: int | None, minid: IdLike | None, approximate: bool) -> list[bytes]:
    """How a stream is trimmed: MAXLEN or MINID, or nothing. UsageError for both."""
    about = b"~" if approximate else b"="
    if maxlen is not None and minid is not None:
        raise UsageError("maxlen and minid: a stream is trimmed by one of them")
    if maxlen is not None:
        return [b"MAXLEN", about, count_word(maxlen)]
    if minid is not None:
        return [b"MINID", about, bytes(id_of(minid))]
    return []


def add_words(
    maxlen: int | None,
    minid: IdLike | None,
    approximate: bool,
    references: References,
    idempotency: tuple[str | bytes, str | bytes] | None,
    create: bool,
) -> list[bytes]:
    """The options of XADD."""
    words = trim_words(maxlen, minid, approximate)
    if references != "keep":
        words.append(references_word(references))
    if idempotency is not None:
        if not isinstance(idempotency, tuple) or len(idempotency) != 2 or not all(idempotency):
            raise UsageError(f"idempotency={idempotency!r}: it is (producer, request), two names, none empty")
        producer, request = map(name_of, idempotency)
        words += [b"IDMP", producer, request]
    if not create:
        words.append(b"NOMKSTREAM")
    return words
