"""Parse columns as SQL declares them: `carrier STRING, delay INT, at TIMESTAMP COMMENT 'epoch_s'`.

    columns = name [:] type [NOT NULL] [COMMENT 'text'], ...
    type    = BIGINT | STRING | ... | DECIMAL(9, 2) | ARRAY<type> | MAP<type, type> | STRUCT<columns>

Names and types are those of Spark, which has a parser of its own, but only in a running JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark.sql import types as T

from headrace.errors import UsageError
from headrace.suggestions import did_you_mean

INFER = re.compile(r"\s*infer\s*(?:,|$)", re.IGNORECASE)
EXAMPLE = "expected one such as 'carrier STRING, delay INT'"
TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|'((?:[^'\\]|\\.|'')*)'|(\w+)|([<>(),:]))")

SIMPLE_TYPES: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "byte": T.ByteType(),
    "smallint": T.ShortType(),
    "short": T.ShortType(),
    "int": T.IntegerType(),
    "integer": T.IntegerType(),
    "bigint": T.LongType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "real": T.FloatType(),
    "double": T.DoubleType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ltz": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "void": T.NullType(),
}
DECIMAL_NAMES = ("decimal", "dec", "numeric")
DECIMAL_DEFAULT = (10, 0)
NESTED_TYPES = ("array", "map", "struct")


def parse_schema(columns: str) -> T.StructType:
    """Parse columns in SQL.

    Raises:
        UsageError: if they are not valid.
    """
    parser = ColumnParser(columns)
    found = parser.columns("")
    if not found.fields:
        raise parser.error()
    return found


class InferredWith(T.StructType):
    """Columns that are declared, where those of all other fields are inferred."""


def parse_columns(text: str) -> T.StructType:
    """Parse columns in SQL; after the word `infer` they are InferredWith: `infer, delay INT`.

    Raises:
        UsageError: if they are not valid.
    """
    begin = INFER.match(text)
    if begin is None:
        return parse_schema(text)
    rest = text[begin.end() :]
    return InferredWith(parse_schema(rest).fields if rest.strip() else [])


def declarations(columns: T.StructType) -> str:
    """Return columns in SQL, as parse_schema() reads them."""
    texts = []
    for column in columns:
        comment = f" COMMENT '{column.metadata['comment']}'" if "comment" in column.metadata else ""
        name = column.name.replace("`", "``")
        texts.append(f"`{name}` {column.dataType.simpleString().upper()}{comment}")
    return ", ".join(texts)


def with_declared(inferred: T.StructType, declared: T.StructType) -> T.StructType:
    """Return the inferred columns, with those that are declared in their place or at the end."""
    own = {column.name: column for column in declared}
    columns = [own.pop(column.name, column) for column in inferred]
    return T.StructType([*columns, *own.values()])


class ColumnParser:
    """Parses one declaration of columns in SQL: names, types, comments."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*self._split(text), ("end", "")]
        self._at = 0

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield tokens: what they are (name, text, word or sign), and their text."""
        at, end = 0, len(text.rstrip())
        while at < end:
            match = TOKEN.match(text, at)
            if match is None:
                raise self.error()
            quoted, literal, word, sign = match.groups()
            if quoted is not None:
                yield "name", quoted.replace("``", "`")
            elif literal is not None:
                yield "text", re.sub(r"\\(.)|''", lambda each: each[1] or "'", literal)
            else:
                yield ("word", word) if word is not None else ("sign", sign)
            at = match.end()

    def error(self) -> UsageError:
        """Return the error for a text that is not valid."""
        return UsageError(f"not a list of columns: {self._text!r}; {EXAMPLE}")

    def columns(self, closing: str) -> T.StructType:
        """Parse columns up to the end of the text, or to a closing sign."""
        fields: list[T.StructField] = []
        while not self._accept(closing):
            if fields:
                self._expect(",")
            name = self._take("word", "name")
            self._accept(":")
            kind = self._type()
            nullable = not self._accept("not", "null")
            metadata = {"comment": self._take("text")} if self._accept("comment") else None
            fields.append(T.StructField(name, kind, nullable, metadata))
        return T.StructType(fields)

    def _type(self) -> T.DataType:
        word = self._take("word").lower()
        if word in SIMPLE_TYPES:
            return SIMPLE_TYPES[word]
        if word in DECIMAL_NAMES:
            return self._decimal()
        if word not in NESTED_TYPES:
            known = [*SIMPLE_TYPES, *DECIMAL_NAMES, *NESTED_TYPES]
            raise UsageError(
                f"{word.upper()} is not a type of a column{did_you_mean(word, known)}; {EXAMPLE}"
            )
        self._expect("<")
        if word == "struct":
            return self.columns(">")
        first = self._type()
        if word == "map":
            self._expect(",")
            kind: T.DataType = T.MapType(first, self._type())
        else:
            kind = T.ArrayType(first)
        self._expect(">")
        return kind

    def _decimal(self) -> T.DecimalType:
        if not self._accept("("):
            return T.DecimalType(*DECIMAL_DEFAULT)
        precision = self._take("word")
        scale = self._take("word") if self._accept(",") else "0"
        self._expect(")")
        is_valid = precision.isdigit() and scale.isdigit() and int(scale) <= int(precision) <= 38
        if not is_valid:
            raise self.error()
        return T.DecimalType(int(precision), int(scale))

    def _take(self, *kinds: str) -> str:
        """Take the next token, which must be of one of these kinds."""
        kind, text = self._tokens[self._at]
        if kind not in kinds:
            raise self.error()
        self._at += 1
        return text

    def _accept(self, *texts: str) -> bool:
        """Take the next tokens if they are these words or signs; "" is the end of the text."""
        following = self._tokens[self._at : self._at + len(texts)]
        found = [text.lower() for kind, text in following if kind in ("word", "sign", "end")]
        if found != list(texts):
            return False
        self._at += len(texts)
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self.error()
