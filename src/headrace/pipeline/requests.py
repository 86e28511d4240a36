r"""A batch of rows as one run of bytes: the requests that add them, and the answers that must come back.

The rows of a batch travel in one transaction, so a batch is in the stream whole or not at all:

    *1 $5 MULTI
    *N $4 XADD $k stream $i id $f field $v value ...      one a row; a null is left out
    *1 $4 EXEC

    +OK  +QUEUED ... +QUEUED  *rows $i id ... $i id       the only answer that is right

Nothing here is a loop over values: Arrow joins the columns' pieces row by row, and the bytes of the
joined column, which lie one after the other in memory, are the requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UsageError
from headrace.resp.request import bulk
from headrace.spark.arrow_cells import plain

MULTI = b"*1\r\n$5\r\nMULTI\r\n"
EXEC = b"*1\r\n$4\r\nEXEC\r\n"
LINE = pa.scalar(b"\r\n", pa.binary())
NOTHING = pa.scalar(b"", pa.binary())


@dataclass(frozen=True)
class Request:
    """Rows ready to be sent. `body` is the XADDs; `answer` is what the server says if it took them all."""

    rows: int
    first_id: str
    last_id: str
    body: memoryview
    answer: bytes


def pack(stream: bytes, ids: list[bytes], batch: pa.RecordBatch, maxlen: int | None = None) -> Request:
    """The request that appends the batch's rows under ids. UsageError if a row has nothing but nulls."""
    head, always = [b"XADD", stream], 0
    if maxlen is not None:
        head += [b"MAXLEN", b"~", b"%d" % maxlen]
    pairs = pa.array([0] * batch.num_rows, pa.int32())
    pieces: list[pa.Array] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = as_bytes(column)
        pieces += [field_prefix(name.encode(), values), values]
        # Most columns have no nulls: count them once, not row by row.
        if values.null_count:
            pairs = pc.add(pairs, values.is_valid().cast(pa.int32()))
        else:
            always += 1
    if always == 0 and pc.min(pairs).as_py() == 0:
        row = pairs.index(0).as_py()
        raise UsageError(
            f"row {row + 1} of the batch that starts at {ids[0].decode()} has no value in any column"
        )
    words = text_of(pc.add(pc.multiply(pairs, 2), len(head) + 1 + 2 * always))
    counts = pc.binary_join_element_wise(pa.scalar(b"*", pa.binary()), words, NOTHING)
    start = pa.scalar(b"".join(map(bulk, head))[:-2], pa.binary())
    id_column = pa.array(ids, pa.binary())
    id_lengths = pa.array([b"$%d" % len(each) for each in ids], pa.binary())
    joined = pc.binary_join_element_wise(
        counts, start, id_lengths, id_column, *pieces, NOTHING, LINE, null_handling="skip"
    )
    rows = len(ids)
    answers = b"".join(map(bulk, ids))
    answer = b"+OK\r\n" + b"+QUEUED\r\n" * rows + b"*%d\r\n" % rows + answers
    return Request(rows, ids[0].decode(), ids[-1].decode(), bytes_of(joined), answer)


def field_prefix(name: bytes, values: pa.Array) -> pa.Array:
    """`$len name $len` for each value, null where the value is: one piece for each length that occurs."""
    lengths = pc.binary_length(values).dictionary_encode()
    prefixes = [b"$%d\r\n%s\r\n$%d" % (len(name), name, length) for length in lengths.dictionary.to_pylist()]
    return pc.take(pa.array(prefixes, pa.binary()), lengths.indices)


def bytes_of(joined: pa.Array) -> memoryview:
    """The bytes of all values of a binary array, one after the other, not copied."""
    _, offsets, data = joined.buffers()
    ends = memoryview(offsets).cast("B").cast("i")
    return memoryview(data)[ends[joined.offset] : ends[joined.offset + len(joined)]]


def as_bytes(column: pa.Array) -> pa.Array:
    """A column in the stream's text forms: decimal numbers, true and false, ISO 8601, JSON if nested."""
    column = plain(column, "iso8601")
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    return text_of(column)


def text_of(column: pa.Array) -> pa.Array:
    """The column cast to text, as bytes."""
    text = column if pa.types.is_string(column.type) else column.cast(pa.string())
    return text.view(pa.binary())
