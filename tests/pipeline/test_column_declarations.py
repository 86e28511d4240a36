"""Columns declared in SQL, compared with Spark's own parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from headrace.errors import UsageError
from headrace.pipeline.column_declarations import SIMPLE_TYPES, parse_schema

DECLARATIONS = [
    "n INT",
    "carrier STRING, dep_delay DOUBLE",
    "a: bigint, b : string",
    "`a b` STRING, `c``d` INT",
    "at TIMESTAMP COMMENT 'epoch_s', x INT NOT NULL",
    "x INT NOT NULL COMMENT 'it''s'",
    "d DECIMAL, e DECIMAL(5), f DECIMAL(9, 2), g NUMERIC(38,38), h dec(3,1)",
    "m MAP<STRING, ARRAY<INT>>, s STRUCT<a: INT, b: STRUCT<c: BINARY NOT NULL>>",
    "s STRUCT<a INT, b: STRING COMMENT 'x'>",
    "  n\tINT ,\n k  string ",
    *(f"x {name.upper()}" for name in SIMPLE_TYPES),
]
INVALID = [
    "",
    " ",
    "n",
    "n INT,",
    ", n INT",
    "n INT k INT",
    "n NOTATYPE",
    "n DECIMAL(2, 3)",
    "n DECIMAL(39)",
    "n DECIMAL(-1)",
    "m MAP<STRING>",
    "a ARRAY<INT",
    "a ARRAY INT",
    "s STRUCT<a INT",
    "n INT NOT",
    "n INT COMMENT x",
    "n INT; m INT",
    "'n' INT",
    "n INT)",
]


@pytest.mark.whole
@pytest.mark.slow
def test_declarations_mean_what_they_mean_in_spark(spark: SparkSession) -> None:
    for text in DECLARATIONS:
        assert parse_schema(text) == T.StructType.fromDDL(text), text


@pytest.mark.parametrize("text", INVALID)
def test_what_is_not_a_declaration_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="expected one such as"):
        parse_schema(text)


TYPES = st.recursive(
    st.sampled_from([*SIMPLE_TYPES.values(), T.DecimalType(9, 2)]),
    lambda inner: st.one_of(
        inner.map(T.ArrayType),
        st.tuples(inner, inner).map(lambda pair: T.MapType(*pair)),
        st.lists(st.tuples(st.text("ab `,<>:", min_size=1), inner), min_size=1, max_size=3).map(
            lambda each: T.StructType(
                [T.StructField(f"{n}{name}", kind) for n, (name, kind) in enumerate(each)]
            )
        ),
    ),
    max_leaves=6,
)


def declared(kind: T.DataType) -> str:
    """Return a type as SQL declares it."""
    if isinstance(kind, T.ArrayType):
        return f"ARRAY<{declared(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"MAP<{declared(kind.keyType)}, {declared(kind.valueType)}>"
    if isinstance(kind, T.StructType):
        return f"STRUCT<{', '.join(f'{quoted(f.name)}: {declared(f.dataType)}' for f in kind)}>"
    return kind.simpleString()


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


@given(TYPES)
def test_all_types_are_parsed(kind: T.DataType) -> None:
    assert parse_schema(f"x {declared(kind)}") == T.StructType([T.StructField("x", kind)])


@given(st.text("abn INTGRS<>(),:`'\\0123456789COMENARY", max_size=30))
def test_no_text_raises_another_error(text: str) -> None:
    try:
        parse_schema(text)
    except UsageError:
        return
