"""Fetch the rows of a Spark query as record batches, as the DuckDB engine returns them.

The rows that PySpark collects cannot hold a time of 0001-01-01 or after the year 9999: converting it to
Python's datetime fails. So the tasks pack their rows in Arrow's format, and only these bytes are collected.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructField, StructType, VariantType

PACKED_SCHEMA = "packed BINARY"


def record_batches(rows: DataFrame) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query in their order; they are computed while they are consumed.

    A column of a type that Arrow lacks is text: INTERVAL YEAR TO MONTH, and VARIANT as JSON.
    """
    names = rows.columns
    # Other names, because those of a query's columns need not be unique.
    numbered = rows.toDF(*(f"c{number}" for number in range(len(names))))
    passed = numbered.select(*(_arrow_column(field) for field in numbered.schema))
    for [packed] in passed.mapInArrow(_pack, PACKED_SCHEMA).toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(packed) as reader:
            for batch in reader:
                yield batch.rename_columns(names)


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replace each batch by one row with its bytes. Runs in a task."""
    for batch in batches:
        output = pa.BufferOutputStream()
        with pa.ipc.new_stream(output, batch.schema) as writer:
            writer.write_batch(batch)
        packed = pa.array([output.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([packed], ["packed"])


def _arrow_column(field: StructField) -> Column:
    """Return a column, or its text if Arrow has no type for it."""
    column, kind = F.col(field.name), field.dataType
    try:
        to_arrow_schema(StructType([field]), timezone="UTC")
    except PySparkException:
        is_text = True
    else:
        is_text = "variant" in kind.simpleString()  # Arrow would have its internal bytes
    if not is_text:
        return column
    is_nested = isinstance(kind, ArrayType | MapType | StructType | VariantType)
    return (F.to_json(column) if is_nested else column.cast("string")).alias(field.name)
