"""Columns declared in SQL, compared with Spark's own parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from headrace.columns.declarations import (
    SIMPLE_TYPES,
    format_columns,
    parse_columns,
    parse_schema,
    type_name,
    with_declared,
)
from headrace.errors import UsageError
from headrace.spark.arrow_schemas import spark_columns

DECLARATIONS = [
    "n INT",
    "carrier STRING, dep_delay DOUBLE",
    "a: bigint, b : string",
    "`a b` STRING, `c``d` INT",
    "at TIMESTAMP COMMENT 'epoch_s', x INT NOT NULL",
    "x INT NOT NULL COMMENT 'it''s'",
    "d DECIMAL, e DECIMAL(5), f DECIMAL(9, 2), g NUMERIC(38,38), h dec(3,1)",
    "m MAP<STRING, ARRAY<INT>>, s STRUCT<a: INT, b: STRUCT<c: BINARY NOT NULL>>",
    "s STRUCT<a INT, b: STRING>",
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
    "n VOID NOT NULL",
    "m MAP<VOID, INT>",
    "n INT)",
    "a decimal(0)",
    "a decimal(\u00b2,1)",
]


@pytest.mark.whole
@pytest.mark.slow
def test_declarations_mean_what_they_mean_in_spark(spark: SparkSession) -> None:
    for text in DECLARATIONS:
        assert spark_columns(parse_schema(text)) == T.StructType.fromDDL(text), text


@pytest.mark.parametrize("text", INVALID)
def test_what_is_not_a_declaration_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="expected one such as"):
        parse_schema(text)


SIMPLE = (
    T.BooleanType(), T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(), T.FloatType(),
    T.DoubleType(), T.DateType(), T.TimestampType(), T.TimestampNTZType(), T.StringType(), T.BinaryType(),
    T.NullType(), T.DecimalType(9, 2),
)  # fmt: skip
TYPES = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        inner.map(T.ArrayType),
        st.tuples(inner.filter(lambda key: key != T.NullType()), inner).map(lambda pair: T.MapType(*pair)),
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
    [column] = parse_schema(f"x {declared(kind)}")
    assert column.type == to_arrow_type(kind, timezone="UTC")
    assert type_name(column.type) == kind.simpleString()


def test_every_name_of_a_type_is_known() -> None:
    assert {type_name(kind) for kind in SIMPLE_TYPES.values()} <= SIMPLE_TYPES.keys()


def test_columns_are_declared_as_they_are_parsed() -> None:
    text = "`a b` INT, `at` TIMESTAMP COMMENT 'epoch_s', `d``` DECIMAL(9,2)"
    assert format_columns(parse_schema(text)) == text
    inferred, declared = parse_schema("a INT, b STRING"), parse_schema("c DATE, a BIGINT")
    assert format_columns(with_declared(inferred, declared)) == "`a` BIGINT, `b` STRING, `c` DATE"


def test_others_are_inferred_after_the_word_infer() -> None:
    for text in ("infer", " INFER, n INT", "infer,"):
        assert parse_columns(text).infers_others
    assert parse_columns("infer, n INT").schema == parse_schema("n INT")
    assert parse_columns("infer").schema.names == []
    assert not parse_columns("n INT").infers_others and not parse_columns("infer INT").infers_others


@given(st.text("abn INTGRS<>(),:`'\\0123456789COMENARY", max_size=30))
def test_no_text_raises_another_error(text: str) -> None:
    try:
        parse_schema(text)
    except UsageError:
        return
