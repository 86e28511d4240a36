"""The Spark schema with which an archive of typed columns is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.archive.creation import EXACT_FIELD
from headrace.archive.files import read_archive
from headrace.archive.location import ArchiveLocation
from headrace.archive.rows import has_fields_map, typed_columns
from headrace.columns.layout import ENTRY_COLUMNS
from headrace.spark.arrow_schemas import spark_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def typed_schema(location: ArchiveLocation) -> StructType | None:
    """Return the entry's own columns, the typed columns of an archive, and `_exact`.

    None for an archive that stores the fields of an entry as one map.

    Raises:
        UsageError: if there is no archive.
        HeadraceError: if the store fails.
    """
    columns = read_archive(location).columns
    if has_fields_map(columns):
        return None
    return spark_columns(pa.schema([*ENTRY_COLUMNS, *typed_columns(columns), EXACT_FIELD]))
