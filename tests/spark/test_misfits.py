"""Values that do not fit are counted under the name of their column, also of one that is called `fields`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from headrace.cli.output.misfits import summarize_misfits
from headrace.errors import UsageError
from headrace.spark.decode.misfits import read_misfit_counts, report_misfits, set_misfits_directory
from headrace.spark.decode.schema import ColumnLayout

TEXTS = MapType(StringType(), StringType())


def layout(**columns: MapType | LongType) -> ColumnLayout:
    return ColumnLayout(StructType([StructField(n, kind) for n, kind in columns.items()]), "epoch_ms")


def test_a_column_called_fields_is_not_the_map(tmp_path: Path) -> None:
    with set_misfits_directory(tmp_path):
        report_misfits("s", "1", layout(_fields=TEXTS, fields=LongType()), [1, 3], "PERMISSIVE")
        counts = read_misfit_counts(tmp_path)
    assert counts == {("s", "_fields"): 1, ("s", "fields"): 3}
    assert summarize_misfits(counts) == "Values that do not fit their column, and are null there: s.fields 3"


def test_a_reserved_column_may_not_be_there_twice() -> None:
    twice = StructType(
        [StructField("_fields", TEXTS), StructField("n", LongType()), StructField("_fields", TEXTS)]
    )
    with pytest.raises(UsageError, match="_fields twice"):
        ColumnLayout(twice, "epoch_ms")
