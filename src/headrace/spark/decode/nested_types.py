"""Check the types of arrays, maps and structs, which are read from JSON (columns/nested_from_json)."""

from __future__ import annotations

from pyspark.sql import types as kinds

from headrace.spark.decode import type_errors

INTEGER_TYPES = (kinds.ByteType, kinds.ShortType, kinds.IntegerType, kinds.LongType)
SCALAR_TYPES = (
    kinds.BooleanType,
    kinds.FloatType,
    kinds.DoubleType,
    kinds.DecimalType,
    kinds.BinaryType,
    kinds.DateType,
    kinds.TimestampType,
    kinds.TimestampNTZType,
    *INTEGER_TYPES,
)


def check_nested_type(name: str, kind: kinds.DataType) -> None:
    """Raise UsageError if a part of the type cannot be read from JSON."""
    if isinstance(kind, kinds.ArrayType):
        check_nested_type(name, kind.elementType)
    elif isinstance(kind, kinds.StructType):
        for field in kind.fields:
            check_nested_type(name, field.dataType)
    elif isinstance(kind, kinds.MapType):
        if type(kind.keyType) not in (kinds.StringType, *INTEGER_TYPES):
            raise type_errors.not_a_map_key(name, kind.keyType.simpleString())
        check_nested_type(name, kind.valueType)
    elif type(kind) not in (kinds.StringType, *SCALAR_TYPES):
        raise type_errors.not_from_json(name, kind.simpleString())
