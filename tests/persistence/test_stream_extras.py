"""Extras beside RDB types: they are restored, and damaged ones do no harm."""

import random
from io import BytesIO

import pytest

from headrace.engine.engine import Engine
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.crc64 import crc64
from headrace.persistence.dump import dump, restore
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.stream_extras import MAGIC, apply_extras, encode_extras, is_extras
from headrace.persistence.rdb.versions import VERSIONS, by_name
from headrace.persistence.rdb.writer import write_rdb
from support.portrait import differences, portrait_of

NOW_MS = 1_700_000_000_000
BEFORE_ACTIVE_TIMES = {"compatible"}
BEFORE_PRODUCERS = {"compatible", "redis-7.2", "redis-8.0"}
BEFORE_UNOWNED = BEFORE_PRODUCERS | {"redis-8.6"}
ALL = BEFORE_UNOWNED | {"redis-8.8"}


def stream_after(*lines):
    """The stream `s` after these commands, each run a second after the one before."""
    engine = Engine()
    session = engine.create_session(now_ms=NOW_MS)
    for n, line in enumerate(lines):
        engine.execute(session, line.encode().split(), NOW_MS + 1000 * n)
        reply = session.reply.take()
        assert not reply.startswith(b"-"), (line, reply)
    return engine.keyspace.databases[0].values[b"s"]


READ = ("XADD s 1-1 f v", "XADD s 2-1 f v", "XADD s 3-1 f v", "XGROUP CREATE s g 0")
READ += ("XREADGROUP GROUP g c STREAMS s >",)
NACK = (*READ, "XNACK s g FAIL IDS 1 3-1", "XNACK s g FAIL IDS 1 1-1")
IDMP = ("XADD s IDMP p one * f v", "XADD s IDMP p one * f v", "XADD s IDMP q two * f v")


@pytest.mark.parametrize(
    ("lines", "kept_in"),
    [
        (["XADD s 1-1 f v", "XGROUP CREATE s g 0"], set()),
        (READ, set()),
        ([*READ, "XREADGROUP GROUP g c STREAMS s >"], BEFORE_ACTIVE_TIMES),  # seen, and given nothing
        ([*READ, "XGROUP CREATECONSUMER s g new"], BEFORE_ACTIVE_TIMES),  # never active
        ([*READ, "XCLAIM s g d 0 3-1 1-1 TIME 5"], ALL),  # two at one time, the later one first
        ([*READ, "XCLAIM s g d 0 1-1 3-1 TIME 5"], set()),
        (NACK, BEFORE_UNOWNED),
        (IDMP, BEFORE_PRODUCERS),
        (["XADD s 1-1 f v", "XCFGSET s IDMP-DURATION 7"], BEFORE_PRODUCERS),
    ],
)
def test_extras_contain_only_what_the_type_cannot_store(lines, kept_in):
    stream = stream_after(*lines)
    found = {version.name for version in VERSIONS if encode_extras(stream, version, NOW_MS) is not None}
    assert found == kept_in


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize("setting", ["stream_idmp_duration", "stream_idmp_maxsize"])
def test_iids_survive_a_lower_default_for_new_streams(version, setting):
    engine = Engine()
    session = engine.create_session(now_ms=NOW_MS)
    for now, line in ((100, "XADD old 1-1 f v"), (7, "XADD new 1-1 f v")):
        setattr(engine.keyspace.settings, setting, now)
        engine.execute(session, line.encode().split(), NOW_MS)
    file = BytesIO()
    write_rdb(engine.keyspace, file.write, version=version, now_ms=NOW_MS)
    file.seek(0)
    again = Keyspace(engine.keyspace.settings)
    read_rdb(file, again, now_ms=NOW_MS)
    for key, stream in engine.keyspace.databases[0].values.items():
        payload = dump(stream, version, compress=True, now_ms=NOW_MS, settings=again.settings)
        for read in (again.databases[0].values[key], restore(payload, again, NOW_MS)):
            assert not differences(portrait_of(stream), portrait_of(read))


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_payload_has_unowned_entries_and_producers_but_no_active_times(version):
    stream = stream_after(*NACK, "XCFGSET s IDMP-MAXSIZE 7")
    payload = dump(stream, version, compress=True, now_ms=NOW_MS)
    assert (MAGIC in payload) == (version.name in BEFORE_UNOWNED)
    again = restore(payload, Engine().keyspace, NOW_MS)
    assert not differences(portrait_of(stream, times=False), portrait_of(again, times=False))
    timed = stream_after(*READ, "XCLAIM s g d 0 3-1 1-1 TIME 5", "XGROUP CREATECONSUMER s g new")
    assert MAGIC not in dump(timed, version, compress=True, now_ms=NOW_MS)


def test_the_order_of_thousands_of_entries_of_equal_time_is_kept():
    ids = [f"{n}-0" for n in range(1, 3001)]
    stream = stream_after(
        *(f"XADD s {word} f v" for word in ids),
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g c STREAMS s >",
        f"XCLAIM s g d 0 {' '.join(reversed(ids[:1200]))} TIME 5",
        f"XCLAIM s g d 0 {' '.join(ids[1200:1300])} TIME 6",
        f"XCLAIM s g d 0 {' '.join(reversed(ids[1500:2900]))} TIME 7",
        "XNACK s g FAIL IDS 2 2000-0 1999-0",
    )
    part = encode_extras(stream, by_name("redis-8.8"), NOW_MS)
    assert len(part) > 2598 * 16  # all that do not rise, and no others
    keyspace = Keyspace()
    keyspace.databases[0].put(b"s", stream)
    file = BytesIO()
    write_rdb(keyspace, file.write, version=by_name("redis-8.8"), now_ms=NOW_MS)
    file.seek(0)
    again = Keyspace()
    read_rdb(file, again, now_ms=NOW_MS)
    assert not differences(portrait_of(stream), portrait_of(again.databases[0].values[b"s"]))


def a_case():
    """A stream as it was read from a plain file, and all four parts of what was kept of it."""
    lines = (*NACK, "XADD s 4-1 f v", "XADD s 5-1 f v", "XGROUP CREATE s h 0")
    lines += ("XREADGROUP GROUP h a STREAMS s >", "XCLAIM s h b 0 5-1 2-1 TIME 5")
    lines += ("XREADGROUP GROUP h a STREAMS s >", *IDMP)
    stream = stream_after(*lines)
    version = by_name("compatible")
    part = encode_extras(stream, version, NOW_MS)
    plain = dump(stream, version, compress=False, now_ms=NOW_MS)
    body = plain[: plain.index(MAGIC)]
    return stream, part, body


def read_plain(body):
    """The stream of a payload from which what was kept is taken out, and its keyspace."""
    keyspace = Engine().keyspace
    footed = body + (10).to_bytes(2, "little")
    return restore(footed + crc64(footed).to_bytes(8, "little"), keyspace, NOW_MS), keyspace


def test_all_parts_of_the_extras_are_restored():
    stream, part, body = a_case()
    assert is_extras(part)
    again, keyspace = read_plain(body)
    assert differences(portrait_of(stream), portrait_of(again))
    apply_extras(again, part, keyspace)
    assert not differences(portrait_of(stream), portrait_of(again))
    again.check()


def test_a_part_that_is_cut_is_refused():
    _, part, body = a_case()
    whole = set()
    for end in range(len(part)):
        again, keyspace = read_plain(body)
        try:
            apply_extras(again, part[:end], keyspace)
        except ValueError:
            continue
        whole.add(end)  # between two parts
    assert len(whole) == 4, whole
    assert len(MAGIC) in whole


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"HRK",
        b"HRK2",
        MAGIC + b"?",
        MAGIC + b"u\x01\x02no",
        MAGIC + b"u\x01\x01g\x02no\x00",
        MAGIC + b"u\x01\x01g\x01c\x01" + bytes(16),
        MAGIC + b"u\x01\x01h\x01a\x00",  # a consumer that owns entries stood in for nobody
        MAGIC + b"a\x01\x01g\x07",
        MAGIC + b"a\x81" + b"\xff" * 8,
        MAGIC + b"o\x01\x01g\x01" + bytes(16),
        MAGIC + b"i\x00\x00\x00\x00\x00",
    ],
)
def test_invalid_extras_are_rejected(part):
    _, _, body = a_case()
    again, keyspace = read_plain(body)
    with pytest.raises(ValueError, match=r"."):
        apply_extras(again, part, keyspace)


def test_damaged_extras_leave_a_valid_stream():
    rng = random.Random(1)
    _, part, body = a_case()
    outcomes = set()
    for _ in range(400):
        broken = bytearray(part)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(MAGIC), len(broken))] = rng.choice([0, 1, 2, 255, rng.randrange(256)])
        again, keyspace = read_plain(body)
        try:
            apply_extras(again, bytes(broken), keyspace)
            outcomes.add("taken")
        except ValueError:
            outcomes.add("refused")
        again.check()
    assert outcomes == {"taken", "refused"}
