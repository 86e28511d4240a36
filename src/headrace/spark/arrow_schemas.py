"""Convert schemas between Spark and Arrow; the only place where jobs and the data source do so.

The comment of a column, which may state the format of its times, is kept in the metadata of its field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def arrow_schema(columns: StructType) -> pa.Schema:
    """Return columns of Spark as an Arrow schema; times with a zone are those of UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found = to_arrow_schema(columns, timezone="UTC")
    comments = [(column.metadata or {}).get("comment") for column in columns]
    return pa.schema(
        [
            field if comment is None else field.with_metadata({"comment": comment})
            for field, comment in zip(found, comments, strict=True)
        ]
    )


def spark_columns(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as columns of Spark."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    found = []
    for field in schema:
        kind = from_arrow_type(field.type, prefer_timestamp_ntz=True)
        comment = (field.metadata or {}).get(b"comment")
        metadata = None if comment is None else {"comment": comment.decode()}
        found.append(StructField(field.name, kind, field.nullable, metadata))
    return StructType(found)
