"""Parse JSON rows: one object on each line, or one array of objects as pandas and databases export it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.columns.json_text import float_text, json_text
from headrace.errors import UsageError
from headrace.pipeline.file_formats.csv_records import BadRow, excerpt
from headrace.pipeline.file_formats.json_scanner import JsonScanner
from headrace.pipeline.file_formats.text_lines import LineReader

EXACT_FLOAT_CHARACTERS = 15  # a decimal number of at most so many characters is exact as a double
ARRAY_ROWS_PER_BATCH = 10_000  # rows of one batch from an array
SPACES_PATTERN = re.compile(r"[ \t\r\n]*")
Row = dict[str, str | None]
BatchesAndBadRows = Iterator[pa.RecordBatch | BadRow]


def parse_lines_or_array(file: LineReader, block_bytes: int) -> BatchesAndBadRows:
    """Yield the objects of JSON lines, or of an array, and a BadRow for each line that holds none.

    Raises:
        UsageError: if an array is not valid JSON, or not UTF-8.
    """
    number = 0
    scan = JsonScanner().scan
    while lines := file.readlines(block_bytes):
        if number == 0 and starts_array(lines):
            yield from batches_and_bad_rows(array_rows(lines, file, block_bytes), ARRAY_ROWS_PER_BATCH)
            return
        parsed = [
            scan(line) or json_object(line, number + at)
            for at, line in enumerate(lines, start=1)
            if line.strip()
        ]
        number += len(lines)
        yield from batches_and_bad_rows(iter(parsed), len(parsed))


def starts_array(lines: list[bytes]) -> bool:
    """Return whether the first lines begin an array of objects; `[1]` is a line that is not an object."""
    text = b"".join(lines[:100]).removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith(b"[") and text[1:].lstrip()[:1] in (b"{", b"]", b"")


def batches_and_bad_rows(rows: Iterator[Row | BadRow], size: int) -> BatchesAndBadRows:
    """Yield rows as batches of columns, and each bad row in its place."""
    found: list[Row] = []
    for row in rows:
        if not isinstance(row, BadRow):
            found.append(row)
        if found and (isinstance(row, BadRow) or len(found) >= size):
            yield text_batch(found)
            found = []
        if isinstance(row, BadRow):
            yield row
    if found:
        yield text_batch(found)


def json_object(line: bytes, number: int) -> Row | BadRow:
    """Return the object on a line, or a BadRow with the reason why there is none."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        row = DECODER.decode(text)
    except UnicodeDecodeError:
        return BadRow(number, f"not UTF-8 (--encoding names another encoding): {excerpt(line)}", line)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        return BadRow(number, f"not JSON: {reason}", line)
    try:
        return object_texts(row)
    except ValueError as error:
        return BadRow(number, f"{error}: {excerpt(line)}", line)


def array_rows(first: list[bytes], file: LineReader, block_bytes: int) -> Iterator[Row | BadRow]:
    """Yield the objects of an array.

    Args:
        first: The first lines.
        file: The other lines.
        block_bytes: How many bytes are read at once.

    Raises:
        UsageError: at the first place that is not JSON, since the next object cannot be located then.
    """
    text = _text(first)
    at = text.index("[") + 1
    row = 0
    after_comma = False
    while True:
        at = _space_end(text, at)
        if text[at : at + 1] == "]" and not after_comma:
            if text[at + 1 :].strip() or any(line.strip() for line in file.readlines(block_bytes)):
                raise UsageError(f"row {row}: more text after the end of the array")
            return
        try:
            value, end = _array_value(text, at)
        except json.JSONDecodeError as error:
            more = _text(file.readlines(max(block_bytes, len(text))))
            if not more:
                raise UsageError(f"row {row + 1}: not JSON: {error.msg}") from error
            text, at = text[at:] + more, 0
            continue
        except RecursionError as error:
            raise UsageError(f"row {row + 1}: nested too deeply") from error
        row += 1
        source = text[at:end]
        after_comma = text[end] == ","
        at = end + after_comma
        try:
            yield object_texts(value)
        except ValueError as error:
            # In the file of rejected rows, each one is a line.
            line = source.replace("\r", "").replace("\n", " ").encode(errors="backslashreplace")
            yield BadRow(0, f"{error}: {excerpt(line)}", line, row_number=row)


def _array_value(text: str, at: int) -> tuple[object, int]:
    """Return the array's value at an offset, and the offset of the comma or bracket after it.

    The value is a ValueError if it cannot be loaded.

    Raises:
        JSONDecodeError: if it is not JSON, or the text ends before the value does.
    """
    value: object
    try:
        value, end = DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        value, (_, end) = error, PLAIN_DECODER.raw_decode(text, at)
    end = _space_end(text, end)
    if text[end : end + 1] not in (",", "]"):  # also if the text ends, perhaps within a number
        raise json.JSONDecodeError("expected a comma or the end of the array", text, end)
    return value, end


def _text(lines: list[bytes]) -> str:
    try:
        return b"".join(lines).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = error.object[error.start : error.start + 20]
        raise UsageError(f"not UTF-8 (--encoding names another encoding): {excerpt(bad)}") from error


def _space_end(text: str, at: int) -> int:
    match = SPACES_PATTERN.match(text, at)
    return match.end() if match else at


def object_texts(row: object) -> Row:
    """Return the fields of a JSON object. ValueError if it is none, or has a value without text."""
    if isinstance(row, ValueError):
        raise row
    if not isinstance(row, dict):
        raise ValueError("not a JSON object, expected one object a line")
    try:
        return {name: field_text(value) for name, value in row.items()}
    except UnicodeEncodeError:
        raise ValueError("contains half a surrogate pair, which is not a character") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def unique_key_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. ValueError if a key occurs twice, because one value would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} occurs twice")
    return found


def exact_float(text: str) -> float | Decimal:
    """Return a JSON number as a double; as a decimal if a double would change it.

    Raises:
        ValueError: if its exponent is too large for a decimal, too.
    """
    value = float(text)
    if len(text) <= EXACT_FLOAT_CHARACTERS and "e" not in text and "E" not in text:
        return value
    try:
        exact = Decimal(text)
    except ArithmeticError:
        raise ValueError(f"the exponent of the number {text[:40]} is out of range") from None
    return value if exact == Decimal(repr(value)) else exact


DECODER = json.JSONDecoder(parse_float=exact_float, object_pairs_hook=unique_key_object)
PLAIN_DECODER = json.JSONDecoder(parse_float=str, parse_int=str)  # finds the end of any value


def text_batch(rows: list[Row]) -> pa.RecordBatch:
    """Return JSON objects as columns of text, in the order in which their keys first appear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [pa.array([row.get(name) for row in rows], pa.string()) for name in names]
    return pa.RecordBatch.from_arrays(columns, names)


def field_text(value: object) -> str | None:
    """Return a JSON value as a field's text: strings as they are, the rest as JSON, null left out."""
    if value is None:
        return None
    if isinstance(value, float):
        return float_text(value)
    text = value if isinstance(value, str) else json_text(value)
    text.encode()  # UnicodeEncodeError for half a surrogate pair
    return text
