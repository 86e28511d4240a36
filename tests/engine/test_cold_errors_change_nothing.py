"""A command that replies COLDERR changes nothing; one that ends before a lost run logs what it did."""

from __future__ import annotations

import pytest

from headrace.engine.engine import Engine
from headrace.errors import DamagedColdRun
from headrace.persistence.rule_records import recorded_command
from headrace.streams.stream import Stream
from support.cold_support import RunsInMemory
from support.portrait import differences, portrait

RUNS = 5  # of three entries each: 1-0 to 15-0
ENTRIES = 17  # the last two are in memory
NOW = 100_000
ALWAYS = 1 << 30
HOT = " ".join(f"{n}-0" for n in range(16, ENTRIES + 1))
LAST = " ".join(f"{n}-0" for n in range(13, ENTRIES + 1))
ALL = " ".join(f"{n}-0" for n in range(1, ENTRIES + 1))

TRIMS = [
    f"{strategy} {threshold}{limit} {policy}"
    for strategy, thresholds in (("MAXLEN", (2, 6, 11)), ("MINID", (4, 8, 17)))
    for how, limit in (("=", ""), ("~", ""), ("~", " LIMIT 4"))
    for threshold in (f"{how} {each}" for each in thresholds)
    for policy in ("KEEPREF", "DELREF", "ACKED")
]
DELETIONS = [
    f"{command}{policy} IDS {len(ids.split())} {ids}"
    for command in ("XDELEX s", "XACKDEL s g")
    for policy in ("", " DELREF", " ACKED")
    for ids in (HOT, LAST, ALL, "17-0 4-0 7-0", "17-0 6-5 9-1")
]
COMMANDS = [
    *[f"XTRIM s {trim}" for trim in TRIMS],
    *[f"XADD s {trim} 50-0 f v" for trim in TRIMS if " 6" in trim or " 8" in trim],
    *[
        f"XDEL s {ids}"
        for ids in (HOT, LAST, ALL, "17-0 4-0 7-0", "17-0 6-5 9-1", "15-0 16-0 14-0 17-0 13-0")
    ],
    *DELETIONS,
    "XCLAIM s g new 0 1-0 4-0 8-0 14-0",
    "XCLAIM s g new 0 17-0 4-0 8-0 12-0 FORCE LASTID 30-0",
    "XCLAIM s g new 0 17-0 6-1 8-0 JUSTID FORCE",
    "XAUTOCLAIM s g new 0 0",
    "XAUTOCLAIM s g new 0 0 COUNT 1 JUSTID",
    "XAUTOCLAIM s g new 99999999 0 COUNT 2",
    "XAUTOCLAIM s g new 0 5-0 COUNT 3",
    "XREADGROUP GROUP h new STREAMS s >",
    "XREADGROUP GROUP h new NOACK STREAMS s >",
    "XREADGROUP GROUP h new COUNT 2 STREAMS other s > >",
    "XREADGROUP GROUP g new CLAIM 0 STREAMS s >",
    "XREADGROUP GROUP g new BLOCK 1000 CLAIM 99999999 STREAMS s >",
    "XREADGROUP GROUP g new CLAIM 0 NOACK STREAMS s >",
    "XREADGROUP GROUP g new CLAIM 0 STREAMS other s > >",
    "XREADGROUP GROUP g ann STREAMS s 0",
    "XREADGROUP GROUP g bob COUNT 2 STREAMS s 5",
    "XREADGROUP GROUP leased new STREAMS s >",
    "XREADGROUP GROUP ordered new STREAMS s >",
    "XGROUP DELCONSUMER s ordered ann",
    "XGROUP CREATE s k 5-0",
    "XGROUP CREATE s k 5-0 ENTRIESREAD 3",
    "XGROUP SETID s g 5-0",
    "XGROUP SETID s h 14-0",
    "XNACK s g FAIL IDS 3 17-0 4-0 8-0 FORCE",
    "XNACK s g FATAL IDS 3 17-0 6-1 10-5 FORCE",
    "XNACK s g SILENT IDS 3 1-0 4-0 8-0",
    "XACK s g 1-0 4-0 8-0 14-0",
    "XSETID s 60-0",
    "XIDMPRECORD s p i 5-0",
    "XCFGSET s MAX-LEN 4",
    "XCFGSET s MAX-LEN 4 EXACT yes",
    "COPY s t",
    "RENAME s t",
    "DEL s",
]


class UnreliableRuns(RunsInMemory):
    """Runs that cannot be loaded any more after `loads_left` loads."""

    loads_left = ALWAYS

    def load(self, place: int) -> list[tuple[bytes, bytearray]]:
        if self.loads_left == 0:
            raise DamagedColdRun("away.cold", place, "it is away")
        self.loads_left -= 1
        return super().load(place)


class Client:
    """A client of an engine with a stream of cold runs, of which one can be lost for a time."""

    def __init__(self, parking: bool = False) -> None:
        self.engine = Engine()
        self.engine.set_effect_recording(True)
        self.engine.effects.needs_redis7_equivalents = True
        self.engine.keyspace.settings.stream_node_max_entries = 3
        self.store = UnreliableRuns()
        self.cold = self.engine.open_cold_storage(self.store, 0)
        self.cold.run_bytes = 1
        self.cold.cache.limit = 1
        self.session = self.engine.create_session()
        self.asked: list[object] = []
        self.lost: dict[int, object] = {}
        self.unused_loads = ALWAYS
        for n in range(1, ENTRIES + 1):
            self.say(f"XADD s {n}-0 f v{n % 2}")
        self.say("XADD other 1-0 f v")
        for line in (
            "XGROUP CREATE other g $",
            "XGROUP CREATE other h $",
            "XGROUP CREATE s g 0",
            "XGROUP CREATE s h 2-0",
            "XGROUP CREATE s leased 8-0",
            "XGROUP CREATE s ordered 7-0",
            "XREADGROUP GROUP g ann COUNT 9 STREAMS s >",
            "XREADGROUP GROUP g bob STREAMS s >",
            "XACK s g 1-0 2-0 3-0 5-0 7-0 16-0",
            "XREADGROUP GROUP h ann COUNT 12 STREAMS s >",
            "XACK s h 3-0 5-0 7-0",
            "XREADGROUP GROUP leased ann COUNT 17 STREAMS s >",
            "XGROUP CFGSET s leased LEASE 1",
            "XREADGROUP GROUP ordered ann COUNT 17 STREAMS s >",
            "XGROUP CREATECONSUMER s ordered bob",
            "XGROUP CFGSET s ordered LEASE 1 ORDERED-BY f",
        ):
            assert not self.say(line).startswith(b"-"), line
        self.cold.hot_bytes_limit = 1
        self.cold.cool_all_to_limit()
        self.cold.hot_bytes_limit = 0
        assert len(self.store.stored) == RUNS
        self.engine.effects.take()
        if parking:  # requests wait for runs, as in a server
            self.engine.enable_parking(self.asked.append)

    def lose(self, run: int) -> None:
        other = 0 if run else 1
        self.say(f"XRANGE s {3 * other + 1}-0 {3 * other + 1}-0")  # the other runs leave the cache
        self.lost = {run: self.store.stored.pop(run)}

    def lose_all_after(self, loads: int, cache_bytes: int) -> None:
        """Let loads fail after so many; no run is in the cache."""
        self.cold.cache.limit = cache_bytes
        self.cold.cache.evict_bytes(1 << 30)
        self.store.loads_left = loads

    def put_back(self) -> None:
        self.store.stored.update(self.lost)
        self.unused_loads = self.store.loads_left
        self.store.loads_left = ALWAYS

    def say(self, line: str | list[str], now: int = NOW) -> bytes:
        words = line.split() if isinstance(line, str) else line
        self.engine.execute(self.session, [word.encode() for word in words], now)
        while self.asked:
            run = self.asked.pop(0)
            try:
                stored = self.store.load(run.storage_location)
            except DamagedColdRun:
                stored = None
            self.engine.on_run_loaded(run, stored, now)
        return bytes(self.session.reply.take())

    def changes(self) -> list[list[bytes]]:
        return [argv for _, argv in self.engine.effects.take()]

    def data(self) -> dict[object, object]:
        """All data as a client sees it when no run is lost."""
        for _, value in self.engine.keyspace.databases[0].values.items():
            if isinstance(value, Stream):
                value.check()
        shown = portrait(self.engine.keyspace, times=False)
        for stream in shown.values():
            stream.pop("first", None)  # not exact beside a lost run
        return shown

    def replay(self, effects: list[list[bytes]]) -> None:
        session = self.engine.create_session()
        session.replayed = True
        for argv in [recorded_command(effect) or effect for effect in effects]:
            self.engine.execute(session, argv, NOW)
            assert not bytes(session.reply.take()).startswith(b"-"), argv


def ask(client: Client, line: str, way: str) -> bytes:
    if way == "MULTI":
        client.say("MULTI")
        client.say(line)
        return client.say("EXEC").removeprefix(b"*1\r\n")
    if way == "EVAL":
        words = line.split()
        script = "local r = redis.pcall(unpack(ARGV)) return r"
        return client.say(["EVAL", script, "0", *words])
    return client.say(line)


@pytest.fixture(scope="module")
def untouched() -> dict[object, object]:
    return Client().data()


def ask_and_check(client: Client, line: str, way: str, untouched: dict[object, object]) -> bool:
    """Say a line, and compare data and effects; return whether COLDERR was the reply."""
    counted = client.engine.keyspace.changes
    reply = ask(client, line, way)
    client.put_back()
    effects = client.changes()
    where = f"{line}, {sorted(client.lost)}, {way}: {reply[:90]!r}, {effects}"
    failed = reply.startswith(b"-COLDERR")
    if failed:
        assert effects == [] and client.engine.keyspace.changes == counted, where
    expected = untouched
    if effects:
        twin = Client()
        twin.replay(effects)
        expected = twin.data()
    assert differences(client.data(), expected) == [], where
    return failed


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_beside_a_lost_run(line: str, untouched: dict[object, object]) -> None:
    client = Client()
    failing = []
    for run in range(RUNS):
        client.lose(run)
        if ask_and_check(client, line, "alone", untouched):
            failing.append(run)
        else:
            client = Client()
    for way in ("MULTI", "EVAL", "parked") if failing else ():
        client = Client(parking=way == "parked")
        client.lose(failing[0])
        assert ask_and_check(client, line, way, untouched), f"{line}, {failing[0]}, {way}"


@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith("XTRIM")])
def test_a_command_while_the_files_become_unreachable(line: str, untouched: dict[object, object]) -> None:
    """Deletions and claims need a cache that holds all their runs."""
    client = Client()
    for loads in range(4 * RUNS):
        client.lose_all_after(loads, 1 if line.startswith("XADD") else 1 << 20)
        if not ask_and_check(client, line, "alone", untouched):
            if client.unused_loads > 0:
                return
            client = Client()
    raise AssertionError("it reads too many runs")


@pytest.mark.parametrize(
    ("line", "failing"),
    [
        (f"XDEL s {HOT}", [4]),
        (f"XDEL s {LAST}", [3, 4]),
        ("XDEL s 17-0 6-5 9-1", []),
        ("XTRIM s MINID ~ 8 KEEPREF", []),
        ("XTRIM s MINID = 2 KEEPREF", [0]),
        ("XADD s MINID ~ 8 DELREF 50-0 f v", [0]),
        ("XTRIM s MAXLEN = 2 ACKED", [0]),
        ("XACKDEL s g IDS 2 1-0 6-0", [1]),
        ("XCLAIM s g new 0 1-0 8-0", [2]),
        ("XREADGROUP GROUP h new STREAMS s >", [4]),
    ],
)
def test_only_the_runs_that_are_needed_are_an_error(line: str, failing: list[int]) -> None:
    found = []
    for run in range(RUNS):
        client = Client()
        client.lose(run)
        if client.say(line).startswith(b"-COLDERR"):
            found.append(run)
    assert found == failing


@pytest.mark.parametrize("rules", ["leased BACKOFF 1", "leased LEASE 2", "ordered LEASE 1"])
@pytest.mark.parametrize("run", [2, 3, 4])
@pytest.mark.parametrize("is_read_before", [False, True])
def test_due_entries_are_delivered_after_the_run_is_put_back(
    rules: str, run: int, is_read_before: bool
) -> None:
    client = Client()
    group = rules.split()[0]
    client.say(f"XGROUP CFGSET s {rules}")
    if is_read_before:
        client.say(f"XREADGROUP GROUP {group} new STREAMS s >", NOW + 5000)
    client.lose(run)
    replies = [client.say(f"XREADGROUP GROUP {group} new STREAMS s >", NOW + 10_000) for _ in range(3)]
    assert any(reply.startswith(b"-COLDERR") for reply in replies)
    client.put_back()
    replies += [
        client.say(f"XREADGROUP GROUP {group} new STREAMS s >", NOW + 10_000 * n) for n in range(2, 5)
    ]
    for n in range(9, ENTRIES + 1):
        assert any(b"\r\n%d-0\r\n" % n in reply for reply in replies), n
