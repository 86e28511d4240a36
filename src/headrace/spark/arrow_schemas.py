"""Convert schemas of Arrow to those of Spark; the only place where jobs and the data source do so.

The comment of a column, which may state the format of its times, is kept in the metadata of its field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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
