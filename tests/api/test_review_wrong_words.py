"""What a user gets wrong is refused where it is said, with words on what to do, and nothing is kept of it."""

import dataclasses
import enum
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest

import headrace
from headrace import Backoff
from headrace.errors import CodecError, CommandError, UsageError

pydantic = pytest.importorskip("pydantic")
NO_NAMES = [None, 5, 1.5, [], object, "\ud800"]


@pytest.mark.parametrize("name", NO_NAMES, ids=repr)
def test_a_name_is_text_or_bytes(database, name) -> None:
    with pytest.raises(UsageError, match=r"name|UTF-8"):
        database.stream(name)
    stream = database.stream("s")
    with pytest.raises(UsageError, match=r"name|UTF-8"):
        stream.group(name)
    group = stream.group("g", create=True)
    if name is not None:
        with pytest.raises(UsageError, match=r"name|UTF-8"):
            group.consumer(name)
    with pytest.raises(UsageError, match=r"name|UTF-8"):
        group.remove_consumer(name)
    assert [one.name for one in stream.groups()] == ["g"]  # the server still can say who is there


def test_half_a_surrogate_is_no_field(database) -> None:
    stream = database.stream("s")
    for fields in ({"a": "\ud800"}, {"\ud800": "a"}):
        with pytest.raises(CodecError, match=r"UTF-8.*give bytes"):
            stream.add(fields)
        with pytest.raises(CodecError, match=r"UTF-8.*give bytes"):
            stream.add_many([{"a": 1}, fields])
    with pytest.raises(CodecError, match="UTF-8"):
        database.stream("s", codec="json").add(["\ud800"])
    assert len(stream) == 0


@pytest.mark.parametrize(
    "words",
    [("MULTI",), ("SELECT", 1), ("subscribe", "c"), ("HELLO", 3), ("CLIENT", "REPLY", "OFF"), ("QUIT",)],
    ids=str,
)
def test_what_changes_a_connection_needs_one(database, words) -> None:
    with pytest.raises(UsageError, match=r"changes the state of a connection.*client\(\)"):
        database.execute(*words)
    assert database.execute("PING") == b"PONG"
    assert database.stream("s").add({"a": 1}) is not None


def test_a_command_has_words(database) -> None:
    with pytest.raises(UsageError, match="needs a command"):
        database.execute()
    for word in (None, True, [], {}):
        with pytest.raises(UsageError, match="name"):
            database.execute("ECHO", word)
    assert database.execute("ECHO", 1.5) == b"1.5"
    assert database.execute("ECHO", "\udcff") == b"\xff"


@pytest.mark.parametrize("count", ["3", 1.5, math.inf, math.nan, -1])
def test_counts_are_whole_numbers(database, count) -> None:
    stream = database.stream("s")
    group = stream.group("g")
    for call in (
        lambda: stream.add({"a": 1}, maxlen=count),
        lambda: stream.trim(maxlen=count),
        lambda: list(stream.range(count=count)),
        lambda: stream.read("0", count=count),
        lambda: group.pending(count=count),
        lambda: group.consumer("c", fetch_count=count),
        lambda: group.consumer("c", concurrency=count),
        lambda: stream.group("g", max_deliveries=count),
    ):
        with pytest.raises(UsageError):
            call()


def test_times_are_numbers_of_seconds(database) -> None:
    stream = database.stream("s")
    for lease in (None, "3", 0, -1, math.inf, math.nan):
        with pytest.raises(UsageError, match="lease"):
            stream.group("g", lease=lease)
    for block in (None, "3", -1, math.nan):
        with pytest.raises(UsageError, match="block"):
            stream.group("g").consumer("c", block=block)
    for backoff in (1.0, 0, "1", {"initial": 1}):
        with pytest.raises(UsageError, match="Backoff"):
            stream.group("g", backoff=backoff)
    for wrong in ({"initial": math.nan}, {"multiplier": math.nan}, {"maximum": math.nan}, {"initial": "1"}):
        with pytest.raises(UsageError, match="back-off"):
            Backoff(**wrong)


def test_dead_letters_have_a_name_or_are_refused_by_false(database) -> None:
    for name in ("", b"", 0, 5, True):
        with pytest.raises(UsageError, match=r"dead_letters|name"):
            database.stream("s").group("g", dead_letters=name)
    assert database.stream("s").group("g", dead_letters=False).policy.dead_letters is None


def test_a_handler_is_a_function(database) -> None:
    with pytest.raises(UsageError, match=r"consumer='worker-1'"):
        database.stream("s").group("g").handler("worker-1")


def test_two_handlers_are_two_consumers(database) -> None:
    group = database.stream("s").group("g")
    group.handler(consumer="c")(print)
    with pytest.raises(UsageError, match="'c' has a handler already"):
        group.handler(consumer=b"c")(print)
    group.handler(print)
    group.handler(print)
    assert len({one.consumer.name for one in group.handlers}) == 3


def test_idempotency_is_two_names_and_the_stream_gives_the_id() -> None:
    with headrace.open() as db:
        stream = db.stream("s")
        for wrong in ("ab", ("a",), ("a", ""), ("a", 5), 7):
            with pytest.raises(UsageError, match=r"producer|name"):
                stream.add({"a": 1}, idempotency=wrong)
        with pytest.raises(UsageError, match="leave id out"):
            stream.add({"a": 1}, id="5-1", idempotency=("p", "r"))
        assert len(stream) == 0


NOBODY = UUID(int=0)


class Colour(enum.Flag):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Typed:
    i: int = 0
    s: str = ""
    b: bytes = b""
    f: float = 0.0
    t: bool = False
    d: date = date(2024, 1, 1)
    w: datetime = datetime(2024, 1, 1, tzinfo=UTC)
    m: Decimal = Decimal(0)
    u: UUID = NOBODY
    c: Colour = Colour.RED


@pytest.mark.parametrize(
    "wrong",
    [
        {"i": 1.5},
        {"i": "5"},
        {"i": None},
        {"s": None},
        {"s": 5},
        {"s": b"x"},
        {"b": 5},
        {"f": "x"},
        {"f": None},
        {"f": 10**400},
        {"t": "false"},
        {"d": datetime(2024, 1, 1, tzinfo=UTC)},
        {"w": date(2024, 1, 1)},
        {"m": "x"},
        {"u": "x"},
        {"c": Colour.RED | Colour.BLUE},
        {"c": "red"},
    ],
    ids=str,
)
def test_an_attribute_that_would_come_back_as_something_else_is_not_stored(wrong) -> None:
    with headrace.open() as db:
        stream = db.stream("s", codec=Typed)
        with pytest.raises(CodecError, match=f"Typed.{next(iter(wrong))}: cannot store"):
            stream.add(Typed(**wrong))
        value = Typed(f=True, i=True, c=Colour.BLUE)
        assert stream[stream.add(value)].value == value
        assert len(stream) == 1


@dataclasses.dataclass
class Lost:
    seed: dataclasses.InitVar[int]
    kept: int = 0


def test_a_class_that_cannot_be_made_again_is_no_codec() -> None:
    with headrace.open() as db, pytest.raises(CodecError, match="InitVar"):
        db.stream("s", codec=Lost)


class Numbers(pydantic.RootModel):
    root: list[int]


class Blob(pydantic.BaseModel):
    data: bytes


def test_models_that_wrap_a_value_and_bytes_that_are_no_text() -> None:
    with headrace.open() as db:
        numbers = db.stream("n", codec=Numbers)
        assert numbers[numbers.add(Numbers([1, 2]))].value == Numbers([1, 2])
        with pytest.raises(CodecError, match="cannot be stored"):
            db.stream("b", codec=Blob).add(Blob(data=b"\xff"))


def test_a_database_stays_in_its_directory_when_the_program_goes_elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with headrace.open("elsewhere/data") as other:
        other.stream("s").add({"n": "other"})
    with headrace.open("data") as db:
        db.stream("s").add({"n": "mine"})
        monkeypatch.chdir(tmp_path / "elsewhere")
        db.compact()
        db.stream("s").add({"n": "mine"})
        assert db.path == str(tmp_path / "data")
    for path, name in ((tmp_path / "data", b"mine"), ("data", b"other")):
        with headrace.open(path) as db:
            assert {entry["n"] for entry in db.stream("s")} == {name}


def test_a_link_that_leads_elsewhere_later_takes_nothing_with_it(tmp_path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("one")
    with headrace.open(tmp_path / "link") as db:
        db.stream("s").add({"n": 1})
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("two")
        db.compact()
    with headrace.open(tmp_path / "one") as db:
        assert len(db.stream("s")) == 1


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"], ids=repr)
def test_what_is_no_path_is_refused(path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="director"):
        headrace.open(path)
    headrace.open(b"bytes").close()
    assert [one.name for one in tmp_path.iterdir()] == ["bytes"]


def test_a_setting_is_a_number_and_a_database_of_a_server_has_one(server_url) -> None:
    with pytest.raises(UsageError, match="from 1 to"):
        headrace.open(stream_idmp_duration="x")
    with (
        headrace.connect(f"{server_url.rstrip('/')}/99") as db,
        pytest.raises(CommandError, match="DB index"),
    ):
        db.execute("PING")
