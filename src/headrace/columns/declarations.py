"""Parse columns as SQL declares them: `carrier STRING, delay INT, at TIMESTAMP COMMENT 'epoch_s'`.

    columns = name [:] type [NOT NULL] [COMMENT 'text'], ...
    type    = BIGINT | STRING | ... | DECIMAL(9, 2) | ARRAY<type> | MAP<type, type> | STRUCT<columns>

The names of types are those of Spark, also in messages. Each stands for the Arrow type that Spark uses when
it passes such a column to Python. The comment of a column is in the metadata of its field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.columns.specs import column_comment
from headrace.errors import UsageError
from headrace.suggestions import suggestion_suffix

INFER_PATTERN = re.compile(r"\s*infer\s*(?:,|$)", re.IGNORECASE)
EXAMPLE_HINT = "expected one such as 'carrier STRING, delay INT'"
TOKEN_PATTERN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|'((?:[^'\\]|\\.|'')*)'|(\w+)|([<>(),:]))")

# By name. Of several names of a type, users are shown the first.
SIMPLE_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
    "void": pa.null(),
}
SIMPLE_TYPE_NAMES = {kind: name for name, kind in reversed(SIMPLE_TYPES.items())}
DECIMAL_NAMES = ("decimal", "dec", "numeric")
DECIMAL_DEFAULT = (10, 0)
NESTED_TYPES = ("array", "map", "struct")


@dataclass(frozen=True)
class DeclaredColumns:
    """The columns of a table that a user declares.

    Attributes:
        schema: The columns.
        infers_others: Whether columns of all other fields are inferred; if not, there are no others.
    """

    schema: pa.Schema
    infers_others: bool = False


def parse_columns(text: str) -> DeclaredColumns:
    """Parse columns in SQL. If they begin with `infer`, all others are inferred: `infer, delay INT`.

    Raises:
        UsageError: if they are not valid.
    """
    begin = INFER_PATTERN.match(text)
    if begin is None:
        return DeclaredColumns(parse_schema(text))
    rest = text[begin.end() :]
    return DeclaredColumns(parse_schema(rest) if rest.strip() else pa.schema([]), infers_others=True)


def parse_schema(columns: str) -> pa.Schema:
    """Parse columns in SQL.

    Raises:
        UsageError: if they are not valid.
    """
    parser = ColumnParser(columns)
    found = parser.parse_until("")
    if not found:
        raise parser.syntax_error()
    return pa.schema(found)


def format_columns(columns: pa.Schema) -> str:
    """Return columns in SQL, as parse_schema() reads them."""
    texts = []
    for column in columns:
        comment = column_comment(column)
        declared = f"{quote_identifier(column.name)} {type_name(column.type).upper()}"
        texts.append(declared + (comment and f" COMMENT '{comment}'"))
    return ", ".join(texts)


def quote_identifier(name: str) -> str:
    """Return a name as Spark's SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def with_declared(inferred: pa.Schema, declared: pa.Schema) -> pa.Schema:
    """Return inferred columns, replaced by declared ones of the same name; then other declared ones."""
    own = {column.name: column for column in declared}
    columns = [own.pop(column.name, column) for column in inferred]
    return pa.schema([*columns, *own.values()])


def type_name(kind: pa.DataType) -> str:
    """Return what Spark calls a type: `bigint`, `array<string>`, `struct<n:int>`."""
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return SIMPLE_TYPE_NAMES.get(kind, str(kind))


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
            match = TOKEN_PATTERN.match(text, at)
            if match is None:
                raise self.syntax_error()
            quoted, literal, word, sign = match.groups()
            if quoted is not None:
                yield "name", quoted.replace("``", "`")
            elif literal is not None:
                yield "text", re.sub(r"\\(.)|''", lambda each: each[1] or "'", literal)
            else:
                yield ("word", word) if word is not None else ("sign", sign)
            at = match.end()

    def syntax_error(self) -> UsageError:
        """Return the error for a text that is not valid."""
        return UsageError(f"not a list of columns: {self._text!r}; {EXAMPLE_HINT}")

    def parse_until(self, closing: str) -> list[pa.Field]:
        """Parse columns up to the end of the text, or to a closing sign."""
        fields: list[pa.Field] = []
        while not self._accept(closing):
            if fields:
                self._expect(",")
            name = self._take("word", "name")
            self._accept(":")
            kind = self._type()
            nullable = not self._accept("not", "null")
            metadata = {"comment": self._take("text")} if self._accept("comment") else None
            fields.append(self._new_field(name, kind, nullable, metadata))
        return fields

    def _new_field(
        self, name: str, kind: pa.DataType, nullable: bool, metadata: dict[str, str] | None = None
    ) -> pa.Field:
        """Return a field. UsageError for one that is always null and must not be."""
        if pa.types.is_null(kind) and not nullable:
            raise self.syntax_error()
        return pa.field(name, kind, nullable, metadata)

    def _type(self) -> pa.DataType:
        word = self._take("word").lower()
        if word in SIMPLE_TYPES:
            return SIMPLE_TYPES[word]
        if word in DECIMAL_NAMES:
            return self._decimal()
        if word not in NESTED_TYPES:
            known = [*SIMPLE_TYPES, *DECIMAL_NAMES, *NESTED_TYPES]
            raise UsageError(
                f"{word.upper()} is not a type of a column{suggestion_suffix(word, known)}; {EXAMPLE_HINT}"
            )
        self._expect("<")
        if word == "struct":
            return pa.struct(self.parse_until(">"))
        first = self._type()
        if word == "map":
            self._expect(",")
            kind = pa.map_(self._new_field("key", first, False), pa.field("value", self._type()))
        else:
            kind = pa.list_(pa.field("element", first))
        self._expect(">")
        return kind

    def _decimal(self) -> pa.DataType:
        precision, scale = DECIMAL_DEFAULT
        if self._accept("("):
            digits, decimals = self._take("word"), "0"
            if self._accept(","):
                decimals = self._take("word")
            self._expect(")")
            if not (
                re.fullmatch("[0-9]+", digits)
                and re.fullmatch("[0-9]+", decimals)
                and max(1, int(decimals)) <= int(digits) <= 38
            ):
                raise self.syntax_error()
            precision, scale = int(digits), int(decimals)
        return pa.decimal128(precision, scale)

    def _take(self, *kinds: str) -> str:
        """Take the next token, which must be of one of these kinds."""
        kind, text = self._tokens[self._at]
        if kind not in kinds:
            raise self.syntax_error()
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
            raise self.syntax_error()
