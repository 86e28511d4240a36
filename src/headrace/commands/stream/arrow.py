"""XARROW: read a stream as columns. Redis does not have this command.

XARROW key start end [COUNT count] [ANCHOR] [MODE mode] COLUMNS n [name type …]

The reply contains the entries from start to end, as many as fit one batch, with the named fields only, as an
Arrow IPC record batch. A client gets columns without parsing entries. The types are in arrow/column_types.py.
A column of the entry as a whole has the name *. As in Spark's readers, the mode selects what happens to a
value that does not fit its type:

    PERMISSIVE      it becomes null; the column of type CORRUPT, if there is one, gets the whole entry
    DROPMALFORMED   the entry is dropped
    FAILFAST        the reply is an error of code MALFORMED

With ANCHOR the entry `start` is not returned; the reply says whether it still exists. A reader that continues
where it stopped thus detects that entries were trimmed in between.
"""

from __future__ import annotations

import cython

from headrace.arrow import column_types, ipc, malformed
from headrace.arrow.columns import Column
from headrace.arrow.encoder import RangeEncoder
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.arrow.ipc import BatchMessage
from headrace.arrow.malformed import MalformedEntry
from headrace.commands.arguments import Arguments
from headrace.commands.call import Call
from headrace.commands.spec import SINCE_HEADRACE, Command
from headrace.errors import CommandError, InvalidSyntax
from headrace.resp.writer import ReplyWriter
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

ZEROS = cython.declare(bytes, bytes(64))
COUNT_DEFAULT = cython.declare(cython.longlong, 10_000)


@cython.final
@cython.cclass
class XArrowRequest:
    """A parsed XARROW, without the range."""

    count: cython.longlong
    wants_anchor: cython.bint
    mode: str
    columns: list[Column]

    def __init__(self, words: Arguments) -> None:
        self.count = COUNT_DEFAULT
        self.wants_anchor = False
        self.mode = "PERMISSIVE"
        while not words.take_flag(b"COLUMNS"):
            if words.take_option(b"COUNT"):
                self.count = words.next_integer()
                if self.count < 1:
                    raise CommandError("ERR COUNT must be positive")
            elif words.take_option(b"MODE"):
                self.mode = words.next_argument().decode(errors="replace").upper()
                if self.mode not in malformed.MODES:
                    raise CommandError("ERR MODE must be PERMISSIVE, DROPMALFORMED or FAILFAST")
            elif words.take_flag(b"ANCHOR"):
                self.wants_anchor = True
            else:
                raise InvalidSyntax()
        pairs: cython.longlong = words.next_integer()
        if not 0 <= pairs <= words.remaining_count() or words.remaining_count() != 2 * pairs:
            raise CommandError("ERR COLUMNS does not match the columns that follow")
        self.columns = column_types.parse_columns(words.take_rest())


def run_arrow(call: Call) -> None:
    """XARROW: reply with a range of entries as a record batch.

    The reply: the last entry read (or null), whether the anchor is missing, whether more entries may follow,
    the number of malformed entries that were dropped, the number of rows, and the batch. If values became
    null or maps had to be escaped, an array precedes the batch, with their number for each column.
    """
    first: StreamId = stream_id.parse_start(call.argv[2])
    last: StreamId = stream_id.parse_end(call.argv[3])
    request: XArrowRequest = XArrowRequest(Arguments(call.argv, 4))
    name: str = call.argv[1].decode(errors="replace")
    encoder: RangeEncoder = RangeEncoder(request.columns, name, request.mode)
    try:
        _reply_with_range(call, request, encoder, first, last)
    finally:
        encoder.close()


def _reply_with_range(
    call: Call, request: XArrowRequest, encoder: RangeEncoder, first: StreamId, last: StreamId
) -> None:
    """Encode the entries between two IDs, and write the reply."""
    stream: Stream | None = call.database.stream(call.argv[1])
    lost: cython.bint = request.wants_anchor
    more: cython.bint = False
    entries: StreamIterator
    try:
        if stream is not None:
            entries = StreamIterator(stream, first.ms, first.seq, last.ms, last.seq, False)
            if request.wants_anchor:
                lost = not encoder.skip_anchor(entries, first.ms, first.seq)
            more = encoder.encode(entries, request.count)
    except MalformedEntry as refused:
        raise CommandError(f"MALFORMED {refused}") from None
    misfits: list[int] = encoder.misfit_counts() if request.mode == "PERMISSIVE" else []
    count: cython.longlong
    call.reply.array(7 if misfits else 6)
    if encoder.entries_read > 0:
        call.reply.stream_id(encoder.ms, encoder.seq)
    else:
        call.reply.null()
    call.reply.integer(lost)
    call.reply.integer(more)
    call.reply.integer(encoder.dropped_entries)
    call.reply.integer(encoder.row_count)
    if misfits:
        call.reply.array(len(misfits))
        for count in misfits:
            call.reply.integer(count)
    _write_message(call.reply, encoder.message(), encoder.row_count)


@cython.cfunc
def _write_message(reply: ReplyWriter, message: BatchMessage, rows: cython.Py_ssize_t) -> cython.void:
    """Write the message as a bulk string, from its pieces."""
    head: bytearray = message.head(rows)
    piece: GrowableBuffer
    reply.bulk_header(len(head) + message.body_bytes)
    reply.raw_from(head, 0, len(head))
    for piece in message.body_buffers:
        reply.raw_from(piece.p, 0, piece.used)
        reply.raw_from(ZEROS, 0, ipc.padded(piece.used) - piece.used)
    reply.raw(b"\r\n")


COMMANDS = [
    Command(
        "xarrow",
        -6,
        run_arrow,
        "readonly",
        keys="1: RO access",
        group="stream",
        since=SINCE_HEADRACE,
        summary="Reads the entries of a stream between two IDs as an Arrow record batch of typed columns.",
        complexity="O(n) for the n entries that are read, at most 20,000 and some 2 MiB",
        syntax="key start end [COUNT count] [ANCHOR] [MODE PERMISSIVE|DROPMALFORMED|FAILFAST]"
        " COLUMNS numcolumns [name type ...]",
    ),
]
