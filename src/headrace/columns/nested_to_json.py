"""Format nested Arrow values, from Parquet files or Spark, as JSON text (columns/json_text).

Inner values are formatted like fields, times in ISO 8601.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from headrace.columns.json_text import json_string, json_text
from headrace.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

NULL_TEXT = "null"

# Extension types whose storage is the internal form of another program, not the value.
OPAQUE_TYPE_NAMES = ("arrow.opaque", "arrow.parquet.variant", "parquet.variant")

LeafFormatter = Callable[["pa.Array"], "pa.Array"]


def nested_texts(column: pa.Array, format_leaf: LeafFormatter) -> list[str | None]:
    """Return the JSON text of each value of a nested Arrow column; None for null.

    Args:
        column: a list, struct or map column.
        format_leaf: formats inner values that are neither nested nor types of JSON.

    Raises:
        UsageError: if an inner value has no text, such as bytes that are not UTF-8.
    """
    valid = column.is_valid().to_pylist()
    return [text if there else None for text, there in zip(_texts(column, format_leaf), valid, strict=True)]


def _texts(column: pa.Array, format_leaf: LeafFormatter) -> list[str]:
    """Return the JSON text of each value; `null` for nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if isinstance(column, pa.ExtensionArray):
        if column.type.extension_name in OPAQUE_TYPE_NAMES or not types.is_nested(column.storage.type):
            return _leaf_texts(column, format_leaf)
        column = column.storage
    kind = column.type
    if types.is_dictionary(kind):
        return _texts(column.dictionary_decode(), format_leaf)
    if types.is_run_end_encoded(kind):
        return _texts(pc.run_end_decode(column), format_leaf)
    if is_variant(kind):
        return _with_nulls(column, _variant_texts(column))
    if types.is_struct(kind):
        names = [json_string(field.name) for field in kind]
        children = [_texts(child, format_leaf) for child in column.flatten()]
        rows: Iterator[Any] = zip(*children, strict=True) if children else iter([()] * len(column))
        texts = ["{" + ",".join(f"{n}:{v}" for n, v in zip(names, row, strict=True)) + "}" for row in rows]
        return _with_nulls(column, texts)
    if types.is_map(kind):
        first, size, spans = _spans(column)
        keys = [_key(text) for text in _texts(column.keys.slice(first, size), format_leaf)]
        items = _texts(column.items.slice(first, size), format_leaf)
        pairs = [f"{key}:{item}" for key, item in zip(keys, items, strict=True)]
        return _with_nulls(column, ["{" + ",".join(pairs[a:b]) + "}" for a, b in spans])
    if types.is_union(kind):
        values = [column[row].value for row in range(len(column))]
        return [NULL_TEXT if v is None else _texts(pa.repeat(v, 1), format_leaf)[0] for v in values]
    if types.is_nested(kind):
        return _list_texts(column, format_leaf)
    return _leaf_texts(column, format_leaf)


def is_variant(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is that of Spark's VARIANT: a struct of its internal bytes."""
    from pyarrow import types

    if not types.is_struct(kind) or sorted(field.name for field in kind) != ["metadata", "value"]:
        return False
    return (kind.field("metadata").metadata or {}).get(b"variant") == b"true"


def _variant_texts(column: pa.Array) -> list[str]:
    """Return the JSON texts of variants."""
    from pyspark.sql.types import VariantVal

    values, metadata = (column.field(name).to_pylist() for name in ("value", "metadata"))
    valid = column.is_valid().to_pylist()
    pairs = zip(values, metadata, valid, strict=True)
    return [str(VariantVal(value, names)) if there else NULL_TEXT for value, names, there in pairs]


def _list_texts(column: pa.Array, format_leaf: LeafFormatter) -> list[str]:
    """Return the texts of lists of any layout."""
    import pyarrow as pa

    if pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
        # Arrow's cast to lists loses elements.
        elements = _texts(column.values, format_leaf)
        views = zip(column.offsets.to_pylist(), column.sizes.to_pylist(), strict=True)
        return _with_nulls(column, ["[" + ",".join(elements[at : at + n]) + "]" for at, n in views])
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        column = column.cast(pa.large_list(column.type.value_type))
    first, size, spans = _spans(column)
    elements = _texts(column.values.slice(first, size), format_leaf)
    return _with_nulls(column, ["[" + ",".join(elements[a:b]) + "]" for a, b in spans])


def _spans(column: pa.Array) -> tuple[int, int, list[tuple[int, int]]]:
    """Return the range of elements that a list or map column uses, and [start, stop) in it for each value.

    A slice of a column still has all elements of the whole column.
    """
    offsets = column.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    ends = [offset - first for offset in offsets]
    return first, ends[-1] if ends else 0, list(pairwise(ends))


def _with_nulls(column: pa.Array, texts: list[str]) -> list[str]:
    if not column.null_count:
        return texts
    return [
        text if there else NULL_TEXT for text, there in zip(texts, column.is_valid().to_pylist(), strict=True)
    ]


def _leaf_texts(column: pa.Array, format_leaf: LeafFormatter) -> list[str]:
    from pyarrow import types

    kind = column.type
    if types.is_decimal(kind):  # its text is a number of JSON
        return [NULL_TEXT if text is None else text for text in format_leaf(column).to_pylist()]
    if not (types.is_boolean(kind) or types.is_integer(kind)):
        column = format_leaf(column)
    if types.is_string(column.type):
        column = column.cast("binary")  # which may not be UTF-8
    elif types.is_large_string(column.type):
        column = column.cast("large_binary")
    values = [_utf8(v) if isinstance(v, bytes) else v for v in column.to_pylist()]
    return [NULL_TEXT if value is None else json_text(value) for value in values]


def _utf8(value: bytes) -> str:
    """Return the text of bytes. Raises UsageError if they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UsageError(
            f"the bytes {value[:40]!r} in an array, map or struct, which JSON cannot hold as they are not "
            "UTF-8: encode them, for example with base64()"
        ) from None


def _key(text: str) -> str:
    """Return a map's key as a string of JSON: a number or a nested value in quotes."""
    return text if text.startswith('"') else json_string(text)
