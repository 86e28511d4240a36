"""Dataclasses within dataclasses: whatever types they are made of, they come back as they were."""

from __future__ import annotations

import dataclasses
import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NewType

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import Entry, StreamID
from headrace.api.codecs.codec import codec_for
from headrace.api.codecs.field_encoding import encode_fields
from headrace.errors import CodecError

ID = StreamID(1, 0)
Cents = NewType("Cents", int)


class Colour(Enum):
    RED = "red"
    BLUE = 2


class Note(pydantic.BaseModel):
    text: str
    at: datetime


@dataclass(frozen=True)
class Address:
    street: str
    number: int | None = None


@dataclass
class Line:
    item: str
    price: Decimal
    count: int = 1
    colours: frozenset[Colour] = frozenset()


@dataclass
class Order:
    customer: Address
    lines: list[Line]
    kind: Literal["web", "shop"]
    cents: Cents
    ship_to: Address | None = None
    by_day: dict[date, tuple[int, str]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


@dataclass
class Node:
    """Holds itself."""

    name: str
    children: list[Node] = field(default_factory=list)
    mother: Node | None = None


def stored(codec: Any, value: Any) -> dict[bytes, bytes]:
    """The fields as they come back from a stream."""
    words = encode_fields(codec.encode(value))
    return dict(zip(words[::2], words[1::2], strict=True))


# Any types, nested in any way, with values of theirs.

finite = st.floats(allow_nan=False, allow_infinity=False)
KEYS = {
    str: st.text(),
    int: st.integers(),
    bool: st.booleans(),
    date: st.dates(),
    uuid.UUID: st.uuids(),
    Colour: st.sampled_from(Colour),
}
ATOMS: dict[Any, st.SearchStrategy[Any]] = KEYS | {
    float: finite,
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    datetime: st.datetimes(timezones=st.none() | st.just(UTC)).map(lambda at: at.replace(fold=0)),
    time: st.times().map(lambda at: at.replace(fold=0)),  # ISO 8601 does not say it
    Cents: st.integers(),
    Literal["a", 1, True]: st.sampled_from(["a", 1, True]),
    Address: st.builds(Address),
}
Typed = tuple[Any, st.SearchStrategy[Any]]


def grown(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    """Types that hold those types."""

    def of_class(parts: list[Typed]) -> Typed:
        names = [f"a{n}" for n in range(len(parts))]
        kind = dataclasses.make_dataclass("Made", [(n, p[0]) for n, p in zip(names, parts, strict=True)])
        return kind, st.builds(kind, **{n: p[1] for n, p in zip(names, parts, strict=True)})

    return st.one_of(
        inner.map(lambda one: (list[one[0]], st.lists(one[1], max_size=3))),  # type: ignore[name-defined]
        inner.map(lambda one: (one[0] | None, st.none() | one[1]) if one[0] not in UNNAMED else one),
        inner.map(lambda one: (tuple[one[0], ...], st.lists(one[1], max_size=3).map(tuple))),  # type: ignore
        st.tuples(inner, inner).map(
            lambda two: (tuple[two[0][0], two[1][0]], st.tuples(two[0][1], two[1][1]))
        ),  # type: ignore
        st.tuples(st.sampled_from(list(KEYS)), inner).map(
            lambda two: (dict[two[0], two[1][0]], st.dictionaries(KEYS[two[0]], two[1][1], max_size=3))  # type: ignore
        ),
        st.sampled_from(list(KEYS)).map(lambda kind: (set[kind], st.sets(KEYS[kind], max_size=3))),  # type: ignore
        st.lists(inner, min_size=1, max_size=3).map(of_class),
    )


UNNAMED = {Cents, Literal["a", 1, True]}
typed = st.recursive(st.sampled_from(list(ATOMS.items())), grown, max_leaves=6)


@given(st.lists(typed, min_size=1, max_size=3), st.data())
def test_whatever_is_nested_comes_back(parts: list[Typed], data: st.DataObject) -> None:
    kind = dataclasses.make_dataclass("Whole", [("n", int), *((f"a{n}", p[0]) for n, p in enumerate(parts))])
    value = kind(0, *(data.draw(part[1]) for part in parts))
    codec = codec_for(kind)
    fields = stored(codec, value)
    back = Entry(ID, fields, codec).value
    assert back == value and sorted(repr(back)) == sorted(repr(value))  # True is not 1; sets have no order
    assert stored(codec, back) == fields


def test_what_it_looks_like() -> None:
    line = Line("pear", Decimal("1.50"), colours=frozenset({Colour.RED, Colour.BLUE}))
    order = Order(Address("High St"), [line], "web", Cents(150), by_day={date(2026, 3, 1): (1, "x")})
    assert stored(codec_for(Order), order) == {
        b"customer": b'{"street":"High St"}',
        b"lines": b'[{"item":"pear","price":"1.50","count":1,"colours":["2","red"]}]',
        b"kind": b"web",
        b"cents": b"150",
        b"by_day": b'{"2026-03-01":[1,"x"]}',
        b"notes": b"[]",
    }


def test_nested_classes_and_models_go_through_a_stream(database: headrace.Database) -> None:
    tree = Node("a", [Node("b", [Node("c")]), Node("d")], Node("e"))
    nodes = database.stream("nodes", codec=Node)
    assert nodes[nodes.add(tree)].value == tree
    noted = Order(
        Address("x", 1), [], "shop", Cents(1), Address("y"), notes=[Note(text="t", at=datetime(2026, 1, 1))]
    )
    orders = database.stream("orders", codec=Order)
    assert orders[orders.add(noted)].value == noted


def test_a_nested_class_may_grow_and_shrink() -> None:
    fields = {
        b"customer": b'{"street":"s","gone":[1]}',
        b"lines": b'[{"item":"i","price":"1"}]',
        b"kind": b"web",
        b"cents": b"1",
    }
    assert Entry(ID, fields, codec_for(Order)).value == Order(
        Address("s"), [Line("i", Decimal(1))], "web", Cents(1)
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"customer": Address(5)}, r"Order\.customer\.street: cannot store 5: expected str"),
        ({"lines": [Line("a", Decimal(1)), Line("b", 2.5)]}, r"Order\.lines\[1\]\.price: cannot store 2\.5"),
        ({"lines": [Address("a")]}, r"Order\.lines\[0\]: cannot store Address.*expected Line"),
        ({"kind": "mail"}, r"Order\.kind: cannot store 'mail': expected one of 'web', 'shop'"),
        (
            {"by_day": {date(2026, 1, 1): (1,)}},
            r"Order\.by_day\[datetime.*\]: cannot store \(1,\): expected 2 items, got 1",
        ),
        ({"by_day": {"today": (1, "")}}, r"Order\.by_day\['today'\]: .*expected date"),
    ],
)
def test_what_cannot_be_stored_is_named(change: dict[str, Any], said: str) -> None:
    given = {"customer": Address("s"), "lines": [], "kind": "web", "cents": Cents(1)} | change
    with pytest.raises(CodecError, match=said):
        codec_for(Order).encode(Order(**given))


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("customer", {}, r"field 'customer\.street' of Order: missing, and Address needs it"),
        ("customer", [], r"field 'customer' of Order: expected dict"),
        ("lines", [{"item": "a", "price": "x"}], r"field 'lines\[0\]\.price' of Order: "),
        (
            "lines",
            [{"item": "a", "price": "1", "colours": ["pink"]}],
            r"field 'lines\[0\]\.colours\[0\]'.*b'pink' is not one of",
        ),
        ("by_day", {"never": [1, ""]}, r"field 'by_day\['never'\]' of Order: "),
    ],
)
def test_what_cannot_be_read_is_named(name: str, given: Any, said: str) -> None:
    codec = codec_for(Order)
    fields = stored(codec, Order(Address("s"), [], "web", Cents(1))) | {
        name.encode(): json.dumps(given).encode()
    }
    with pytest.raises(CodecError, match=f"entry 1-0: {said}"):
        _ = Entry(ID, fields, codec).value
