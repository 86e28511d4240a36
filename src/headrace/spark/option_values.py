"""Parsers of option values. Each converts a text, or raises ValueError that says what the text must be.

Offsets have three forms: a word for all streams, JSON by stream, or times. A time is stored as the last ID
before it, because IDs begin with the time:

    1700000000000  or  2023-11-14T22:13:20Z    ->  1699999999999-18446744073709551615
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from typing import Any

from headrace.archive.location import archive_location
from headrace.client.stream_names import normalize_name
from headrace.errors import UsageError
from headrace.positions.entry_ids import U64_MAX, parse_id
from headrace.positions.position import parse_position

NAMED_OFFSETS = ("earliest", "latest")
KAFKA_NAMED_OFFSETS = {-2: "earliest", -1: "latest"}
SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SECONDS_PER_UNIT |= {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
DURATION_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)
BYTES_PER_UNIT = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
}
WHOLE_NUMBER_PATTERN = re.compile(r"\s*[0-9]+\s*")
SIGNED_NUMBER_PATTERN = re.compile(r"\s*-?[0-9]+\s*")
BYTE_COUNT_PATTERN = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)
ONE_MS = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def parse_name(text: str) -> str:
    """Return the text. Raises ValueError if it is empty."""
    if not text:
        raise ValueError("must not be empty")
    return text


def parse_archive(text: str) -> str:
    """Parse a directory or a URL of an object store."""
    try:
        return archive_location(parse_name(text)).uri
    except UsageError as error:
        raise ValueError(str(error)) from None


def parse_text_map(text: str) -> dict[str, str]:
    """Parse a JSON object of texts."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise ValueError('must be a JSON object of texts, like {"AWS_REGION": "eu-west-1"}')
    return found


def parse_stream_list(text: str) -> tuple[str, ...]:
    """Parse names separated by commas; duplicates are removed."""
    found = tuple(dict.fromkeys(normalize_name(each.strip()) for each in text.split(",") if each.strip()))
    if not found:
        raise ValueError("must name at least one stream, like orders,bids")
    return found


def parse_stream_array(text: str) -> tuple[str, ...]:
    """Parse a JSON array of names; duplicates are removed."""
    found = _parse_json(text)
    if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
        raise ValueError('must be JSON like ["orders", "bids"]')
    return tuple(dict.fromkeys(map(normalize_name, found)))


def parse_regex(text: str) -> str:
    """Check a regular expression, and return it."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:  # a{9999999999}, too many brackets
        raise ValueError(f"not a regular expression ({error})") from None
    return text


def parse_positive(text: str) -> int:
    """Parse a whole number, at least 1."""
    if not WHOLE_NUMBER_PATTERN.fullmatch(text) or int(text) < 1:
        raise ValueError("must be a whole number, at least 1")
    return int(text)


def parse_count(text: str) -> int:
    """Parse a whole number, 0 or more."""
    if not WHOLE_NUMBER_PATTERN.fullmatch(text):
        raise ValueError("must be a whole number, 0 or more")
    return int(text)


def parse_byte_count(text: str) -> int:
    """Parse a number of bytes: 1000000, or 16m."""
    found = BYTE_COUNT_PATTERN.fullmatch(text)
    if not found or found[2].lower() not in BYTES_PER_UNIT:
        raise ValueError("must be a number of bytes, like 1000000 or 16m")
    return parse_positive(found[1]) * BYTES_PER_UNIT[found[2].lower()]


def parse_duration(text: str) -> float:
    """Parse a duration like 5s, 500ms, 15m or 1 hour; return seconds."""
    found = DURATION_PATTERN.fullmatch(text)
    unit = found[2].lower() if found else ""
    seconds = SECONDS_PER_UNIT.get(unit) or SECONDS_PER_UNIT.get(unit.removesuffix("s"))
    if not found or not seconds:
        raise ValueError("must be a time like 500ms, 5s or 15m")
    return float(found[1]) * seconds


def parse_boolean(text: str) -> bool:
    """Parse true or false."""
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def one_of_parser(*words: str) -> Callable[[str], str]:
    """Return a parser of one of these words, case-insensitive."""

    def parse(text: str) -> str:
        for word in words:
            if text.lower() == word.lower():
                return word
        raise ValueError(f"must be one of {', '.join(words)}")

    return parse


def parse_entry_id(text: str) -> str:
    """Check an entry ID, and return it."""
    parse_id(text)
    return text


def parse_offsets(text: str) -> str | dict[str, str]:
    """Parse earliest, latest, or JSON with these words, IDs or positions by stream.

    In the JSON, -2 means earliest and -1 latest, as in Kafka.
    """
    if text.strip().lower() in NAMED_OFFSETS:
        return text.strip().lower()
    found = _parse_json(text)
    if isinstance(found, dict):
        found = {s: KAFKA_NAMED_OFFSETS.get(v, v) if isinstance(v, int) else v for s, v in found.items()}
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise ValueError(
            'must be earliest, latest or JSON like {"orders": "1700000000000-0", "bids": "earliest"}'
        )
    return {normalize_name(s): v if v in NAMED_OFFSETS else str(parse_position(v)) for s, v in found.items()}


def parse_timestamp_as_id(text: str) -> str:
    """Parse a time, and return the last ID before it."""
    return _id_before(text)


def parse_timestamps_as_ids(text: str) -> dict[str, str]:
    """Parse JSON with a time by stream, and return the last IDs before them."""
    found = _parse_json(text)
    if not isinstance(found, dict) or not all(isinstance(v, int | str) for v in found.values()):
        raise ValueError('must be JSON like {"orders": 1700000000000, "bids": "2023-11-14T22:13:20Z"}')
    return {normalize_name(stream): _id_before(value) for stream, value in found.items()}


def parse_spark_redis_offsets(text: str) -> dict[str, str]:
    """Parse {"offsets": {"orders": {"groupName": "g", "offset": "1548083485360-0"}}}, as in spark-redis."""
    found = _parse_json(text)
    by_stream = found.get("offsets") if isinstance(found, dict) else None
    if not isinstance(by_stream, dict) or not all(isinstance(v, dict) for v in by_stream.values()):
        raise ValueError('must be JSON like {"offsets": {"orders": {"offset": "1548083485360-0"}}}')
    given = {stream: str(value.get("offset", "$")) for stream, value in by_stream.items()}
    for value in given.values():
        if value != "$":
            parse_id(value)
    return {stream: "latest" if value == "$" else value for stream, value in given.items()}


def _id_before(value: str | int) -> str:
    """Return the last ID before a time: milliseconds since 1970, or ISO 8601 (UTC if it has no zone)."""
    ms = int(value) if SIGNED_NUMBER_PATTERN.fullmatch(str(value)) else _milliseconds(str(value).strip())
    if not 0 <= ms <= U64_MAX:
        raise ValueError(f"must be a time from 1970 on, at most {U64_MAX} ms")
    return f"{ms - 1}-{U64_MAX}" if ms else "0-0"


def _milliseconds(text: str) -> int:
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be milliseconds since 1970 or a time like 2023-11-14T22:13:20Z") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return -((EPOCH - time) // ONE_MS)  # rounded up to a whole millisecond


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None
