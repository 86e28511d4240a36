"""The columns of an archive as Spark reads them."""

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
    """Return the columns to read of an archive of typed columns: all of them, and the entry's own.

    `_exact` has the entries that the others do not represent. None for an archive of maps.

    Raises:
        UsageError: if there is no archive.
        HeadraceError: if the store fails.
    """
    columns = read_archive(location).columns
    if has_fields_map(columns):
        return None
    return spark_columns(pa.schema([*ENTRY_COLUMNS, *typed_columns(columns), EXACT_FIELD]))
