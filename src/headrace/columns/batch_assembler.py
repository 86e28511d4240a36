"""Make record batches from Arrow buffers: of an XARROW reply, or of a page encoded in this process.

column in the layout    type in XARROW      how the values are made from the reply
item string             UTF8                taken as they are, without a copy
at timestamp            EPOCH_MS            taken as they are, if all texts are numbers
day date32              BINARY              Python converts each distinct text
_stream string          not requested       the name of the stream, repeated

If a column such as `at` also has other texts, the request is sent again with the type BINARY for that
column. Python then converts its texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrow import column_types, growable_buffer
from headrace.arrow.encoder import RangeEncoder
from headrace.columns.converters import Converter, ScaledIntegerConverter
from headrace.columns.layout import ArrowLayout
from headrace.columns.nested_from_json import is_nested
from headrace.columns.specs import ColumnSpec
from headrace.errors import ProtocolError
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream

U64_MAX = (1 << 64) - 1
NODE_BYTES_MAX = 4096
NODE_ENTRIES_MAX = 100
MALFORMED_MODE = "PERMISSIVE"


@dataclass(frozen=True)
class EncodedColumns:
    """The rows of some entries as an Arrow IPC message.

    misfit_counts: how many values of each column did not fit its type; empty if all did.
    """

    row_count: int
    misfit_counts: Sequence[int]
    message: bytes


class BatchAssembler:
    """Makes the batches of one layout and stream.

    Args:
        layout: the columns.
        stream: the name of the stream.
        is_untrusted: check messages completely, because they are from a server.
    """

    def __init__(self, layout: ArrowLayout, stream: bytes, is_untrusted: bool) -> None:
        self._layout = layout
        self._stream = growable_buffer.escaped(stream).decode()
        self._is_untrusted = is_untrusted
        self._specs = layout.decoded_specs
        self._nested_columns = {n for n, spec in enumerate(self._specs) if spec.kind == "nested"}
        self._text_columns = {n for n, spec in enumerate(self._specs) if spec.kind in ("converted", "nested")}

    def xarrow_arguments(self) -> list[bytes]:
        """Return the arguments name, type, name, type ... of XARROW."""
        words = []
        for n, spec in enumerate(self._specs):
            words.append(b"*" if spec.kind in column_types.ENTRY_KINDS else spec.name.encode())
            words.append(b"BINARY" if n in self._text_columns else _server_type(spec))
        return words

    def assemble_converted(self, encoded: EncodedColumns) -> tuple[pa.RecordBatch, list[int]] | None:
        """Return the batch of a reply of XARROW to xarrow_arguments(), and how many misfits each column has.

        None: a column of integers also has other texts. That column is BINARY in xarrow_arguments() from now
        on: send the request again with these arguments.

        Raises:
            ProtocolError: if it is not a reply to xarrow_arguments().
        """
        if len(encoded.misfit_counts) not in (0, len(self._specs)):
            raise ProtocolError(f"a reply of XARROW counts {len(encoded.misfit_counts)} columns")
        mixed = {
            n
            for n, count in enumerate(encoded.misfit_counts)
            if count and self._specs[n].kind == "integer" and "convert" in self._specs[n].settings
        }
        if not mixed <= self._text_columns:
            self._text_columns |= mixed
            return None
        arrays, converted = self._decode(encoded, self._text_columns)
        misfits = list(encoded.misfit_counts or [0] * len(self._specs))
        for n, count in converted.items():
            misfits[n] = count
        return self._with_stream(arrays, encoded.row_count), misfits

    def assemble(self, encoded: EncodedColumns) -> tuple[pa.RecordBatch, list[int]]:
        """Return the batch of columns of encode_entries(), and the misfits of its columns."""
        arrays, _ = self._decode(encoded, self._nested_columns)  # the encoder has only checked nested values
        return self._with_stream(arrays, encoded.row_count), list(encoded.misfit_counts)

    def _decode(self, encoded: EncodedColumns, as_text: set[int]) -> tuple[list[pa.Array], dict[int, int]]:
        """Return the columns; those of as_text are converted here, and their misfits are returned, too."""
        fields = self._layout.decoded_fields
        schema = pa.schema(
            [pa.field(each.name, pa.binary()) if n in as_text else each for n, each in enumerate(fields)]
        )
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(encoded.message), schema)
            if self._is_untrusted:
                batch.validate(full=True)
        except (pa.ArrowException, OSError, EOFError) as wrong:
            raise ProtocolError(f"not a record batch in a reply of XARROW: {wrong}") from None
        if batch.num_rows != encoded.row_count:
            raise ProtocolError(
                f"a reply of XARROW with {batch.num_rows} instead of {encoded.row_count} rows"
            )
        arrays, misfits = list(batch.columns), {}
        for n in as_text:
            arrays[n], misfits[n] = convert_and_count_misfits(
                arrays[n], fields[n].type, text_converter(self._specs[n])
            )
        return arrays, misfits

    def _with_stream(self, decoded: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
        rest = iter(decoded)
        arrays = [
            pa.repeat(pa.scalar(self._stream, pa.string()), rows) if spec.kind == "stream" else next(rest)
            for spec in self._layout.specs
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._layout.schema)


def _server_type(spec: ColumnSpec) -> bytes:
    """Return XARROW's type for a column."""
    settings = {name: value for name, value in spec.settings.items() if name != "convert"}
    found = column_types.type_argument(spec.kind, settings)
    assert found is not None, f"XARROW has no type for {spec.kind} {settings}"
    return found


def text_converter(spec: ColumnSpec) -> Converter:
    """Return the converter for any text of a column."""
    settings: dict[str, Any] = spec.settings
    if spec.kind == "integer":
        return ScaledIntegerConverter(
            settings["low"], settings["high"], settings["scale"], settings["convert"]
        )
    convert: Converter = settings["convert"]
    return convert


def convert_and_count_misfits(texts: pa.Array, kind: pa.DataType, convert: Converter) -> tuple[pa.Array, int]:
    """Convert binary values, each distinct one once.

    Returns:
        The values, null where the conversion failed, and how many those are.
    """
    encoded = texts.dictionary_encode()
    values: list[Any] = []
    wrong: list[bool] = []
    for text in encoded.dictionary.to_pylist():
        try:
            values.append(convert(text))
            wrong.append(False)
        except (ValueError, ArithmeticError):
            values.append(None)
            wrong.append(True)
    distinct = pa.array(values, kind) if is_nested(kind) else _fixed_width_array(values, kind)
    misfits = pc.sum(pa.array(wrong, pa.bool_()).take(encoded.indices)).as_py() or 0
    return distinct.take(encoded.indices), misfits


def _fixed_width_array(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """Return an array of values in Arrow's form."""
    blank = bytes(kind.bit_width // 8)
    data = b"".join(blank if value is None else value for value in values)
    valid = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(kind, len(values), [valid.buffers()[1], pa.py_buffer(data)])


def encode_entries(
    entries: Sequence[tuple[int, int, list[bytes]]], layout: ArrowLayout, stream: str
) -> Iterator[EncodedColumns]:
    """Encode entries of a reply of XRANGE as XARROW would, with all types of the layout.

    Args:
        entries: for each entry, the two numbers of its ID and its fields (name, value, name, value ...); the
            IDs increase.
        layout: the columns.
        stream: the name of the stream, for errors.

    Raises:
        MalformedEntry: if a value does not fit a column that is not nullable.
    """
    held = Stream()
    for ms, seq, words in entries:
        held.append(ms, seq, words, 0, NODE_BYTES_MAX, NODE_ENTRIES_MAX)
    walk = StreamIterator(held, 0, 0, U64_MAX, U64_MAX, False)
    more = True
    while more:
        encoder = RangeEncoder(layout.new_columns(), stream, MALFORMED_MODE)
        try:
            more = encoder.encode(walk, len(entries))
            if encoder.row_count:
                yield EncodedColumns(
                    encoder.row_count, encoder.misfit_counts(), encoder.message().to_bytes(encoder.row_count)
                )
        finally:
            encoder.close()
