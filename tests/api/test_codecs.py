"""Codecs: what goes in comes out, field by field, and what cannot says why."""

from __future__ import annotations

import json
import math
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import Entry, StreamID
from headrace.api.codecs.codec import codec_for
from headrace.api.codecs.field_encoding import encode_fields
from headrace.errors import CodecError, HeadraceError

ID = StreamID(1, 0)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass
class Everything:
    text: str
    raw: bytes
    whole: int
    broken: float
    yes: bool
    price: Decimal
    unique: uuid.UUID
    at: datetime
    day: date
    hour: time
    colour: Colour
    level: Level
    maybe: int | None
    noted: Annotated[str, "a note"]
    many: list[int]
    table: dict[str, list[float]]
    whatever: Any


class Model(pydantic.BaseModel):
    text: str
    whole: int
    broken: float
    yes: bool
    price: Decimal
    unique: uuid.UUID
    at: datetime
    colour: Colour
    level: Level
    maybe: int | None
    many: list[int]
    whatever: Any
    named: str = pydantic.Field(alias="Name-In-The-Stream")


finite = st.floats(allow_nan=False, allow_infinity=False)
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | finite | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
json_not_none = plain_json.filter(lambda value: value is not None)
decimals = st.decimals(allow_nan=False, allow_infinity=False)

everything = st.builds(
    Everything,
    broken=finite,
    price=decimals,
    at=st.datetimes(timezones=st.none() | st.just(UTC)),
    many=st.lists(st.integers()),
    table=st.dictionaries(st.text(), st.lists(finite, max_size=2), max_size=2),
    whatever=json_not_none,
)


def stored(codec: Any, value: Any) -> dict[bytes, bytes]:
    """The fields as they come back from a stream."""
    words = encode_fields(codec.encode(value))
    return dict(zip(words[::2], words[1::2], strict=True))


@given(everything)
def test_a_dataclass_comes_back(value: Everything) -> None:
    codec = codec_for(Everything)
    fields = stored(codec, value)
    assert Entry(ID, fields, codec).value == value
    assert set(fields) == {
        name.encode() for name, one in vars(value).items() if not (one is None and name == "maybe")
    }


@given(
    text=st.text(),
    whole=st.integers(-(2**63), 2**63),
    broken=finite,
    yes=st.booleans(),
    price=decimals,
    unique=st.uuids(),
    at=st.datetimes(timezones=st.just(UTC)),
    colour=st.sampled_from(Colour),
    level=st.sampled_from(Level),
    maybe=st.none() | st.integers(0, 9),
    many=st.lists(st.integers(0, 99)),
    whatever=json_not_none,
    named=st.text(),
)
def test_a_model_comes_back(named: str, **attributes: Any) -> None:
    value = Model.model_validate({**attributes, "Name-In-The-Stream": named})
    codec = codec_for(Model)
    fields = stored(codec, value)
    assert Entry(ID, fields, codec).value == value
    assert fields[b"Name-In-The-Stream"] == named.encode()
    assert fields[b"text"] == attributes["text"].encode()
    assert fields[b"whole"] == str(attributes["whole"]).encode()


@given(plain_json)
def test_json_comes_back(value: Any) -> None:
    codec = codec_for("json")
    fields = stored(codec, value)
    assert list(fields) == [b"json"] and json.loads(fields[b"json"]) == value
    assert Entry(ID, fields, codec).value == value


@given(st.dictionaries(st.text(), st.text(), min_size=1))
def test_text_comes_back(value: dict[str, str]) -> None:
    codec = codec_for("text")
    assert Entry(ID, stored(codec, value), codec).value == value


@given(st.dictionaries(st.binary(), st.binary(), min_size=1))
def test_bytes_come_back(value: dict[bytes, bytes]) -> None:
    assert Entry(ID, stored(codec_for(None), value), codec_for(None)).value == value


def test_attributes_are_fields_that_others_can_read() -> None:
    @dataclass
    class Order:
        customer: str
        cents: int
        gift: bool
        tags: list[str]
        note: str | None = None

    fields = stored(codec_for(Order), Order("ada", 999, True, ["new", "é"]))
    assert fields == {
        b"customer": b"ada",
        b"cents": b"999",
        b"gift": b"true",
        b"tags": '["new","é"]'.encode(),
    }


def test_a_class_may_grow_while_old_entries_are_there() -> None:
    @dataclass
    class Grown:
        customer: str
        note: str | None
        currency: str = "EUR"
        tags: list[str] = field(default_factory=list)

    entry = Entry(ID, {b"customer": b"ada", b"gone": b"1"}, codec_for(Grown))
    assert entry.value == Grown("ada", None, "EUR", [])


def test_what_is_missing_or_wrong_is_named_with_the_entry() -> None:
    @dataclass
    class Order:
        customer: str
        cents: int

    codec = codec_for(Order)
    with pytest.raises(CodecError, match=r"entry 1-0: .*'cents' of Order: missing"):
        _ = Entry(ID, {b"customer": b"ada"}, codec).value
    with pytest.raises(CodecError, match=r"entry 1-0: .*'cents'.*b'x'"):
        _ = Entry(ID, {b"customer": b"ada", b"cents": b"x"}, codec).value
    with pytest.raises(CodecError, match=r"entry 1-0 .*'json'|entry 1-0 .*json"):
        _ = Entry(ID, {b"customer": b"ada"}, codec_for("json")).value
    with pytest.raises(CodecError, match=r"entry 1-0"):
        _ = Entry(ID, {b"json": b"{"}, codec_for("json")).value
    with pytest.raises(CodecError, match=r"entry 1-0"):
        _ = Entry(ID, {b"customer": b"\xff"}, codec_for("text")).value
    with pytest.raises(CodecError, match=r"entry 1-0"):
        _ = Entry(ID, {b"text": b"x"}, codec_for(Model)).value
    assert issubclass(CodecError, HeadraceError)


def test_an_instance_of_a_subclass_loses_nothing() -> None:
    @dataclass
    class Event:
        n: int

    @dataclass
    class Sale(Event):
        cents: int

    class Named(Event):
        """It has no attributes of its own."""

    stream = headrace.open().stream("events", codec=Event)
    with pytest.raises(CodecError, match=r"^Event: cannot store .*: is a Sale, whose cents would be lost$"):
        stream.add(Sale(1, 999))
    assert stream[stream.add(Named(2))].value == Event(2)
    assert len(stream) == 1


def test_values_of_another_kind_are_refused() -> None:
    @dataclass
    class Order:
        cents: int

    @dataclass
    class Other:
        cents: int

    with pytest.raises(CodecError, match="Order"):
        codec_for(Order).encode(Other(1))  # type: ignore[arg-type]
    with pytest.raises(CodecError, match="mapping"):
        codec_for(None).encode([1])  # type: ignore[arg-type]
    with pytest.raises(CodecError, match="mapping"):
        codec_for("text").encode("hello")  # type: ignore[arg-type]
    with pytest.raises(CodecError, match="JSON"):
        codec_for("json").encode({1, 2})
    with pytest.raises(CodecError, match=r"Order\.cents"):
        codec_for(Order).encode(Order("twelve"))  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_rejected_before_anything_is_stored(number: float) -> None:
    with headrace.open() as db:
        values = db.stream("values", codec="json")
        for value in (number, [1, number], {"ratio": number}):
            with pytest.raises(CodecError, match=r"cannot be stored as JSON: .*not JSON compliant"):
                values.add(value)
            with pytest.raises(CodecError, match="cannot be stored as JSON"):
                values.add_many([1, value])
        assert len(values) == 0
        db.execute("XADD", "values", "1-0", "json", json.dumps(number))  # as earlier versions stored it
        assert str(values["1-0"].value) == str(number)


@pytest.mark.parametrize("spec", ["xml", 5, int, dict, object()])
def test_what_is_no_codec_is_refused(spec: object) -> None:
    with pytest.raises(CodecError, match="codec"):
        codec_for(spec)  # type: ignore[call-overload]


@dataclass
class Hidden:
    raw: bytes


@dataclass
class Box:
    hidden: Hidden


@dataclass
class Several:
    number: int | str


@dataclass
class Deep:
    table: dict[str, list[complex]]


@pytest.mark.parametrize(
    ("kind", "named"), [(Box, "Hidden.raw"), (Several, "Several.number"), (Deep, "Deep.table")]
)
def test_attributes_without_a_way_to_be_stored_are_refused_at_once(kind: type, named: str) -> None:
    with pytest.raises(CodecError, match=named):
        codec_for(kind)


class Commas:
    """A codec of the user's."""

    def encode(self, value: list[int], /) -> dict[str, str]:
        return {"list": ",".join(map(str, value))}

    def decode(self, fields: dict[bytes, bytes], /) -> list[int]:
        return [int(word) for word in fields[b"list"].split(b",")]


class Duck:
    """Has the two methods of a model, and tells no attributes."""

    def __init__(self, quacks: int) -> None:
        self.quacks = quacks

    def model_dump(self, **_: object) -> dict[str, int]:
        return {"quacks": self.quacks}

    @classmethod
    def model_validate(cls, found: dict[str, int]) -> Duck:
        return cls(found["quacks"])


def test_codecs_and_models_of_the_users(database: headrace.Database) -> None:
    lists = database.stream("lists", codec=Commas())
    id = lists.add([1, 2, 3])
    assert lists[id].value == [1, 2, 3]
    ducks = database.stream("ducks", codec=Duck)
    assert ducks[ducks.add(Duck(7))].value.quacks == 7


def test_typed_streams(database: headrace.Database) -> None:
    @dataclass
    class Order:
        customer: str
        cents: int

    orders = database.stream("orders", codec=Order)
    given = [Order("ada", 999), Order("grace", 1)]
    orders.add_many(given)
    assert [entry.value for entry in orders] == given
    assert "codec=Order" in repr(orders)
    entry = orders.first()
    assert entry is not None and entry["customer"] == b"ada" and entry.value is entry.value
