"""What a stream of pydantic models or dataclasses accepts, it reads back equal; the rest is rejected."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import pathlib
import uuid
import zoneinfo
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, Json, SecretStr
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

import headrace
from headrace import Entry, StreamID
from headrace.api.codecs.codec import codec_for
from headrace.api.codecs.comparison import first_changed_part
from headrace.errors import CodecError

ID = StreamID(1, 0)
T = TypeVar("T")


def stored(value: Any, kind: Any = None) -> dict[bytes, bytes]:
    """The fields as they come back from a stream."""
    stream = headrace.open().stream("s", codec=kind or type(value))
    return stream[stream.add(value)].fields


def read(kind: Any, fields: dict[bytes, bytes]) -> Any:
    """The value of an entry with these fields."""
    return Entry(ID, fields, codec_for(kind)).value


def comes_back(value: Any, kind: Any = None) -> dict[bytes, bytes]:
    """Check that a value is read as an equal one; return what is stored."""
    fields = stored(value, kind)
    assert first_changed_part(value, read(kind or type(value), fields)) is None
    return fields


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    ONE = 1
    TWO = "two"


class Point(TypedDict):
    x: int
    y: float


@dataclasses.dataclass
class Plain:
    day: datetime.date
    sizes: list[int]


class Inner(BaseModel):
    n: int
    at: datetime.datetime | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]

text = st.text(st.characters(codec="utf-8"), max_size=6)
whole = st.integers(-(2**70), 2**70)
dates = st.dates()
inner = st.builds(Inner, n=whole, at=st.none() | st.datetimes(timezones=st.just(datetime.UTC)))
pets = st.builds(Cat, kind=st.just("cat"), lives=whole) | st.builds(Dog, kind=st.just("dog"), name=text)
TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, text | st.sampled_from(['"a"', "5", "null", "true", ""])),
    (int, whole),
    (float, st.floats()),
    (bool, st.booleans()),
    (bytes, text.map(str.encode)),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (uuid.UUID, st.uuids()),
    (datetime.datetime, st.datetimes(timezones=st.none() | st.just(datetime.UTC))),
    (datetime.date, dates),
    (datetime.time, st.times()),
    (datetime.timedelta, st.timedeltas(datetime.timedelta(days=-9999), datetime.timedelta(days=9999))),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Mixed, st.sampled_from(Mixed)),
    (Literal["a", '"b"', "5"], st.sampled_from(["a", '"b"', "5"])),
    (Literal["a", 5], st.sampled_from(["a", 5])),
    (pathlib.Path, st.sampled_from(["a/b", '"a"', "5", "é"]).map(pathlib.Path)),
    (HttpUrl, st.sampled_from(["http://example.org/", "https://example.org/a?b=c"]).map(HttpUrl)),
    (ipaddress.IPv4Address, st.ip_addresses(v=4)),
    (list[int], st.lists(whole, max_size=3)),
    (set[str], st.sets(text, max_size=3)),
    (tuple[int, str], st.tuples(whole, text)),
    (dict[str, datetime.date], st.dictionaries(text, dates, max_size=2)),
    (dict[int, float], st.dictionaries(st.integers(0, 9), st.floats(allow_nan=False), max_size=2)),
    (Json[list[int]], st.lists(whole, max_size=2)),
    (Inner, inner),
    (list[Inner], st.lists(inner, max_size=2)),
    (Pet, pets),
    (Point, st.fixed_dictionaries({"x": whole, "y": st.floats(allow_nan=False)})),
    (Plain, st.builds(Plain, day=dates, sizes=st.lists(whole, max_size=2))),
]
ALIASES: list[dict[str, Any]] = [
    {},
    {"alias": "A-{}"},
    {"validation_alias": "V-{}"},
    {"serialization_alias": "S-{}"},
    {"alias": "A-{}", "serialization_alias": "S-{}"},
]
CONFIGS: list[ConfigDict] = [
    {},
    {"strict": True},
    {"extra": "forbid"},
    {"extra": "allow"},
    {"frozen": True},
    {"populate_by_name": True},
    {"use_enum_values": True},
    {"ser_json_bytes": "base64", "val_json_bytes": "base64"},
    {"ser_json_timedelta": "float"},
]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_generated_model_comes_back(data: st.DataObject) -> None:
    declared: dict[str, Any] = {}
    values = {}
    for n in range(data.draw(st.integers(1, 4))):
        name = f"f{n}"
        annotation, strategy = data.draw(st.sampled_from(TYPES))
        options = {key: alias.format(n) for key, alias in data.draw(st.sampled_from(ALIASES)).items()}
        if data.draw(st.booleans()):
            annotation, strategy = annotation | None, strategy | st.none()
            if data.draw(st.booleans()):
                options["default"] = None
        declared[name] = (annotation, Field(**options))
        values[name] = data.draw(strategy)
    config = data.draw(st.sampled_from(CONFIGS))
    kind: Any = pydantic.create_model("Generated", __config__=config, **declared)
    if config.get("use_enum_values"):
        values = {name: one.value if isinstance(one, Enum) else one for name, one in values.items()}
    value = kind.model_construct(**values)  # whatever the names under which the model validates them
    if all(one is None for one in values.values()):
        return
    comes_back(value)


def test_names_that_are_only_read_or_only_written_come_back() -> None:
    class Line(BaseModel):
        item: str = Field(validation_alias=pydantic.AliasChoices("product", "article"))
        cents: int = Field(serialization_alias="price")

    class Order(BaseModel):
        number: int = Field(validation_alias="nr")
        lines: list[Line] = Field(serialization_alias="rows")

    value = Order(nr=5, lines=[Line(product="cup", cents=3)])  # type: ignore[call-arg]
    assert comes_back(value) == {b"number": b"5", b"rows": b'[{"item":"cup","cents":3}]'}


@pytest.mark.parametrize("seconds", [0.0, 0.5, -3.0, 86_400.0 * 400, 1e-6])
@pytest.mark.parametrize("form", ["float", "iso8601"])
def test_durations_come_back_from_numbers_and_iso_8601(form: Any, seconds: float) -> None:
    class Lap(BaseModel):
        model_config = ConfigDict(ser_json_timedelta=form)
        took: datetime.timedelta

    comes_back(Lap(took=datetime.timedelta(seconds=seconds)))


def test_nested_aliases_are_stored_as_before() -> None:
    class Line(BaseModel):
        cents: int = Field(alias="price")

    class Order(BaseModel):
        number: int = Field(validation_alias="nr")
        line: Line

    value = Order(nr=5, line=Line(price=3))  # type: ignore[call-arg]
    assert comes_back(value) == {b"number": b"5", b"line": b'{"price":3}'}
    assert read(Order, {b"nr": b"5", b"line": b'{"price":3}'}) == value


def test_computed_fields_are_stored_and_not_read() -> None:
    class Line(BaseModel):
        model_config = ConfigDict(extra="forbid")
        n: int

        @pydantic.computed_field  # type: ignore[prop-decorator]
        @property
        def double(self) -> int:
            return 2 * self.n

    class Order(BaseModel):
        model_config = ConfigDict(extra="allow")
        lines: list[Line]

        @pydantic.computed_field  # type: ignore[prop-decorator]
        @property
        def total(self) -> int:
            return sum(line.double for line in self.lines)

    assert comes_back(Line(n=2)) == {b"n": b"2", b"double": b"4"}
    assert comes_back(Order(lines=[Line(n=2)])) == {b"lines": b'[{"n":2}]', b"total": b"4"}


def test_what_older_versions_stored_in_quotes_is_read() -> None:
    class Link(BaseModel):
        kind: Literal["a", "b"]
        url: HttpUrl
        path: pathlib.Path
        host: ipaddress.IPv4Address | None

    value = Link(kind="a", url=HttpUrl("http://x.org/"), path=pathlib.Path("a/b"), host=None)
    old = {b"kind": b'"a"', b"url": b'"http://x.org/"', b"path": b'"a/b"'}
    new = {b"kind": b"a", b"url": b"http://x.org/", b"path": b"a/b"}
    assert read(Link, old) == value and comes_back(value) == new


def test_text_of_other_clients_is_read_as_before() -> None:
    class Reading(BaseModel):
        n: int
        on: bool
        x: float
        note: str

    fields = {b"n": b"007", b"on": b"yes", b"x": b"1e3", b"note": b'"5"'}
    assert read(Reading, fields) == Reading(n=7, on=True, x=1000.0, note='"5"')
    assert read(Reading, fields | {b"on": b"1"}).on is True


def test_a_field_cannot_add_another_one() -> None:
    class Order(BaseModel):
        tags: list[str]
        paid: bool = False

    with pytest.raises(CodecError, match=r"entry 1-0: field 'tags' of Order: "):
        read(Order, {b"tags": b'[],"paid":true'})


def test_a_default_of_none_is_not_given_to_validators() -> None:
    class Order(BaseModel):
        cents: int
        discount: int | None = None

        @pydantic.field_validator("discount")
        @classmethod
        def positive(cls, value: int) -> int:
            assert value > 0
            return value

    comes_back(Order(cents=5))


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Box(BaseModel, Generic[T]):
    content: T


class Days(pydantic.RootModel[list[datetime.date]]):
    pass


class Nothing(BaseModel):
    model_config = ConfigDict(extra="allow")


class Celsius(BaseModel):
    degrees: float

    @pydantic.field_serializer("degrees")
    def write(self, value: float) -> str:
        return f"{value} C"

    @pydantic.field_validator("degrees", mode="before")
    @classmethod
    def parse(cls, value: Any) -> Any:
        return value.removesuffix(" C") if isinstance(value, str) else value


@pytest.mark.parametrize(
    "value",
    [
        Tree(value=1, children=[Tree(value=2)]),
        Box[int](content=5),
        Box[list[Inner]](content=[Inner(n=1)]),
        Box(content=5),
        Days([datetime.date(2026, 1, 2)]),
        Nothing(more=5),  # type: ignore[call-arg]
        Celsius(degrees=21.5),
    ],
    ids=repr,
)
def test_models_of_every_kind_come_back(value: BaseModel) -> None:
    comes_back(value)


def test_private_attributes_are_not_stored() -> None:
    class Order(BaseModel):
        n: int
        _cache: list[int] = pydantic.PrivateAttr(default_factory=list)

    order = Order(n=5)
    order._cache.append(1)
    assert comes_back(order) == {b"n": b"5"}


class Excluded(BaseModel):
    n: int
    secret: int = Field(exclude=True)


class Holder(BaseModel):
    parts: dict[str, list[Excluded | None]]


class Account(BaseModel):
    word: SecretStr | None = None


class Twice(BaseModel):
    a: int = Field(serialization_alias="x")
    b: int = Field(serialization_alias="x")


@dataclasses.dataclass
class Owner:
    account: Account


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (Excluded, r"Excluded\.secret has exclude=True.*: remove exclude"),
        (Holder, r"Holder\.parts\.secret has exclude=True"),
        (Account, r"Account\.word is a SecretStr, .*asterisks.*: use str"),
        (Owner, r"Account\.word is a SecretStr"),
        (Twice, r"Twice\.b: another attribute is stored as 'x'"),
    ],
)
def test_a_model_that_would_lose_an_attribute_is_rejected_at_once(kind: type, named: str) -> None:
    with pytest.raises(CodecError, match=named):
        headrace.open().stream("s", codec=kind)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int


class Wide(Inner):
    more: int = 0


class Hashed(BaseModel):
    word: str

    @pydantic.field_validator("word")
    @classmethod
    def hashed(cls, value: str) -> str:
        return f"<{value}>"


class Lossy(BaseModel):
    when: datetime.datetime

    @pydantic.field_serializer("when")
    def write(self, value: datetime.datetime) -> str:
        return value.strftime("%Y-%m-%d")


class Limited(BaseModel):
    cents: int = Field(default=0, ge=0)
    anything: Any = None


class Flat(BaseModel):
    n: int

    @pydantic.model_serializer
    def write(self) -> str:
        return str(self.n)


@dataclasses.dataclass
class Counted:
    n: int
    made: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Doubling:
    n: int

    def __post_init__(self) -> None:
        self.n *= 2


@dataclasses.dataclass
class Nested:
    inside: list[Doubling]


def counted() -> Counted:
    value = Counted(1)
    value.made = 7
    return value


MOMENT = datetime.datetime(2026, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("value", "kind", "named"),
    [
        (Open(n=5, more=5), Open, r"^Open\.more: cannot store 5: would come back as '5'; use "),  # type: ignore[call-arg]
        (Open(n=5, more=None), Open, r"^Open\.more: cannot store None: would be lost"),  # type: ignore[call-arg]
        (Wide(n=5, more=3), Inner, r"^Inner"),
        (Hashed(word="a"), Hashed, r"^Hashed\.word: cannot store '<a>': would come back as '<<a>>'"),
        (Lossy(when=MOMENT), Lossy, r"^Lossy\.when: cannot store datetime"),
        (
            Limited.model_construct(cents="9"),
            Limited,
            r"^Limited\.cents: cannot store '9': would come back as 9",
        ),
        (
            Limited.model_construct(cents=-9),
            Limited,
            r"could not be read again: Limited: field 'cents': Input",
        ),
        (Limited(anything=(1, 2)), Limited, r"^Limited\.anything: cannot store \(1, 2\)"),
        (Limited(anything=Level.LOW), Limited, r"^Limited\.anything: cannot store <Level"),
        (Flat(n=1), Flat, r"^Flat is dumped as '1'"),
        (Box(content=MOMENT), Box, r"^Box\.content: cannot store datetime"),
        (counted(), Counted, r"^Counted\.made: cannot store 7: would come back as 0"),
        (Doubling(1), Doubling, r"^Doubling\.n: cannot store 2: would come back as 4"),
        (Nested([Doubling(1)]), Nested, r"^Nested\.inside\[0\]\.n: cannot store 2: would come back as 4"),
    ],
)
def test_a_value_that_would_come_back_changed_is_rejected(value: Any, kind: type, named: str) -> None:
    stream: headrace.Stream[Any] = headrace.open().stream("s", codec=kind)
    with pytest.raises(CodecError, match=named):
        stream.add(value)
    assert not len(stream)


def test_dataclasses_that_compute_attributes_come_back() -> None:
    @dataclasses.dataclass
    class Area:
        width: int
        height: int
        area: int = dataclasses.field(init=False)
        cache: list[int] = dataclasses.field(init=False, default_factory=list, compare=False)

        def __post_init__(self) -> None:
            self.area = self.width * self.height

    value = Area(2, 3)
    value.cache.append(1)
    assert comes_back(value) == {b"width": b"2", b"height": b"3"}

    @pydantic.dataclasses.dataclass
    class Reading:
        at: datetime.datetime
        inner: Inner

    comes_back(Reading(MOMENT, Inner(n=5)))


def test_an_invalid_field_is_named_in_one_line() -> None:
    with pytest.raises(CodecError, match=r"^entry 1-0: Cat: field 'lives': Input .*, not 'x'$"):
        read(Cat, {b"kind": b"cat", b"lives": b"x"})
    with pytest.raises(CodecError, match=r"^entry 1-0: Cat: field 'kind': Field required \(and 1 more\)$"):
        read(Cat, {b"name": b"x"})


def test_a_time_in_the_hour_that_its_zone_has_twice_is_stored() -> None:
    """PEP 495: such a time of a zone equals no time of another zone, not even the same instant."""
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    for fold in (0, 1):
        time = datetime.datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold)
        assert first_changed_part(time, datetime.datetime.fromisoformat(time.isoformat())) is None
        other = datetime.datetime.fromisoformat(time.replace(fold=1 - fold).isoformat())
        assert first_changed_part(time, other) == ("", time, other)
