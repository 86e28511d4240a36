"""The base of a log refers to cold runs: what is loaded is equal to what was written inline."""

import contextlib
import io
import threading
from random import Random
from typing import Any

import pytest

from headrace.engine.engine import Engine
from headrace.errors import DamagedColdRun
from headrace.keyspace.cold_storage import ColdStorage
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.cold_references import ColdReferences
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.damage import Damaged
from headrace.persistence.dump import BadPayload, restore
from headrace.persistence.rdb.encoder import RdbEncoder
from headrace.persistence.rdb.encoder_thread import EncoderThread
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.versions import TYPE_COLD, VERSIONS, RdbVersion
from headrace.persistence.rdb.writer import rdb_steps, write_rdb
from simulation.disk import SimulatedFiles
from support.all_commands import START_MS, History

DIRECTORY = "log/cold"


def inline(keyspace: Keyspace, version: RdbVersion, now_ms: int) -> bytes:
    """What SAVE would write now."""
    pieces: list[bytes] = []
    write_rdb(keyspace, pieces.append, version=version, now_ms=now_ms, checksum=False)
    return b"".join(pieces)


def open_cold(engine: Engine, files: SimulatedFiles, limit: int = 0) -> Any:
    """Let an engine use the cold files of a directory; return its cold storage."""
    return engine.open_cold_storage(ColdStore(ColdFiles(files, DIRECTORY, file_bytes_max=3000)), limit)


def loaded(base: bytes, files: SimulatedFiles, now_ms: int = START_MS) -> Engine:
    """Return an engine that has loaded a base."""
    engine = Engine()
    open_cold(engine, files)
    read_rdb(io.BytesIO(base), engine.keyspace, now_ms=now_ms, keep_expired=True)
    return engine


def check_all(keyspace: Keyspace) -> int:
    """Check all streams; return the number of cold runs."""
    runs = 0
    for database in keyspace.databases:
        for value in database.values.values():
            if not isinstance(value, bytes | bytearray):
                value.check()  # type: ignore[attr-defined]
                runs += value.run_count()  # type: ignore[attr-defined]
    return runs


def run_and_cool(history: History, cold: ColdStorage) -> None:
    for _ in range(20):
        history.run(10)
        cold.cool_all_to_limit()


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("seed", range(16))
def test_a_base_among_random_commands_is_equal_to_one_without_references(seed: int, deferred: bool) -> None:
    history = History(seed)
    random = Random(seed)
    files = SimulatedFiles()
    cold = open_cold(history.engine, files, 1)
    cold.run_bytes = random.choice([40, 200, 1000])
    cold.cache.limit = random.choice([1, 1 << 20])
    keyspace = history.engine.keyspace
    runs = 0
    for _ in range(4):
        run_and_cool(history, cold)
        version = random.choice(VERSIONS)
        now = history.latest
        expected = inline(keyspace, version, now)
        pieces: list[Any] = []
        out = RdbOutput(pieces.append, deferred=deferred)
        references = ColdReferences()
        step_bytes = random.choice([1, 50, 1000])
        image = keyspace.freeze(now, step_bytes) if random.random() < 0.8 else keyspace.view(now)
        view = image.databases[0].epoch == 0
        for _ in rdb_steps(image, out, version=version, aof_base=True, references=references):
            if not view:
                history.run(random.choice([0, 1, 5]))
                cold.cool_all_to_limit()
        out.write_trailer(True)
        if not view:
            keyspace.release_image(image)
        encoder = RdbEncoder()
        base = b"".join(bytes(encoder.encode(piece)) if deferred else piece for piece in pieces)
        again = loaded(base, files, now)
        runs += check_all(again.keyspace)
        assert {file.name for file in references} == files_of(again.keyspace)
        assert inline(again.keyspace, version, now) == expected
    assert runs > 4 or not history.calm


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_among_random_commands_has_the_nodes_of_runs(seed: int, compress: bool) -> None:
    """The encoder's thread reads the runs, as they were when the snapshot began."""
    history = History(2 * seed)
    random = Random(seed)
    cold = open_cold(history.engine, SimulatedFiles(), 1)
    cold.run_bytes = random.choice([40, 200, 1000])
    keyspace = history.engine.keyspace
    for _ in range(4):
        run_and_cool(history, cold)
        version = random.choice(VERSIONS)
        now = history.latest
        pieces: list[bytes] = []
        write_rdb(keyspace, pieces.append, version=version, now_ms=now, compress=compress)
        written = bytearray()
        image = keyspace.freeze(now, random.choice([1, 50, 1000]))
        thread = EncoderThread(written.extend)
        out = RdbOutput(thread.put, compress, deferred=True)
        for _ in rdb_steps(image, out, version=version):
            history.run(random.choice([0, 1, 5]))
            cold.cool_all_to_limit()
            thread.wait_for_room()
        out.write_trailer(True)
        thread.finish()
        assert thread.wait(20) and thread.size() == len(written)
        keyspace.release_image(image)
        assert written == b"".join(pieces)
    assert cold.runs_stored > 4


def snapshot(engine: Engine) -> tuple[EncoderThread, bytearray]:
    """Write a snapshot by a thread; return both."""
    written = bytearray()
    thread = EncoderThread(written.extend)
    out = RdbOutput(thread.put, deferred=True)
    with contextlib.suppress(DamagedColdRun):  # thread.size() raises it
        for _ in rdb_steps(engine.keyspace.view(START_MS), out, version=VERSIONS[0]):
            pass
        out.write_trailer(True)
        thread.finish()
    assert thread.wait(20)
    return thread, written


def test_only_the_thread_of_a_snapshot_reads_runs() -> None:
    engine, _, _ = cold_base()
    store = engine.keyspace.cold_storage.store
    threads = []
    load = store.load

    def load_and_note(place: Any) -> Any:
        threads.append(threading.current_thread())
        return load(place)

    store.load = load_and_note
    thread, written = snapshot(engine)
    assert thread.size() == len(written)
    assert len(threads) > 4 and threading.current_thread() not in threads


def test_a_snapshot_fails_with_the_entries_that_cannot_be_read() -> None:
    engine, _, files = cold_base()
    files.names[f"{DIRECTORY}/1.cold"].data[60] ^= 1
    thread, _ = snapshot(engine)
    with pytest.raises(DamagedColdRun, match="the entries 1-0 to 10-0 cannot be read"):
        thread.size()


def files_of(keyspace: Keyspace) -> set[str]:
    """Return the names of the cold files that are open."""
    store = keyspace.cold_storage.store.files
    return {name for name, known in store._known.items() if known.file() is not None}


def cold_base(entries: int = 60) -> tuple[Engine, bytes, SimulatedFiles]:
    """Return an engine with a stream s whose nodes are cold but the last, a base of it, and the files."""
    engine = Engine()
    files = SimulatedFiles()
    engine.keyspace.settings.stream_node_max_entries = 5
    cold = open_cold(engine, files, 1)
    cold.run_bytes = 100
    for number in range(1, entries + 1):
        talk(engine, b"XADD s %d-0 n %d" % (number, number))
    cold.cool_all_to_limit()
    return engine, base_of(engine), files


def base_of(engine: Engine) -> bytes:
    """Return a base that refers to cold runs."""
    pieces: list[bytes] = []
    write_rdb(
        engine.keyspace,
        pieces.append,
        version=VERSIONS[0],
        now_ms=START_MS,
        references=ColdReferences(),
        checksum=False,
        compress=False,
    )
    return b"".join(pieces)


def talk(engine: Engine, line: bytes) -> bytes:
    session = engine.create_session()
    engine.execute(session, line.split(), START_MS)
    return session.reply.take()


def test_loading_a_base_reads_no_run() -> None:
    engine, base, files = cold_base()
    talk(engine, b"XDEL s 1-0 2-0 7-0 8-0 9-0 31-0 60-0")
    talk(engine, b"XTRIM s MAXLEN ~ 40")
    base = base_of(engine)
    files.faults.failing = {"read": 1.0}
    again = Engine()
    store = ColdStore(ColdFiles(files, DIRECTORY))
    again.open_cold_storage(store, 0)
    files.faults.failing = {}
    loads: list[Any] = []
    store.load = loads.append  # type: ignore[method-assign]
    read_rdb(io.BytesIO(base), again.keyspace, now_ms=START_MS)
    assert talk(again, b"XLEN s") == talk(engine, b"XLEN s")
    assert not loads
    del store.load
    for line in (b"XRANGE s - +", b"XINFO STREAM s", b"XREVRANGE s + - COUNT 9", b"DUMP s"):
        assert talk(again, line) == talk(engine, line)


@pytest.mark.parametrize("by_reference", [False, True])
def test_nodes_become_cold_while_a_stream_is_loaded(by_reference: bool) -> None:
    engine, _, files = cold_base(100)
    for number in range(101, 3000):
        talk(engine, b"XADD s %d-0 n %d" % (number, number))
    data = base_of(engine) if by_reference else inline(engine.keyspace, VERSIONS[0], START_MS)
    again = Engine()
    cold = open_cold(again, files, 30_000)
    cold.run_bytes = 2000
    read_rdb(io.BytesIO(data), again.keyspace, now_ms=START_MS)
    check_all(again.keyspace)
    assert cold.runs_stored > 10
    assert again.cold_storage.data_bytes() < engine.keyspace.memory.total / 2
    assert talk(again, b"DUMP s") == talk(engine, b"DUMP s")


def test_a_base_is_small_however_much_is_cold() -> None:
    few, many = len(cold_base(200)[1]), len(cold_base(2000)[1])
    assert many - few < 1800 * 20  # of two runs for ten entries


@pytest.mark.parametrize("what", ["missing", "short", "none"])
def test_a_base_without_its_cold_files_is_not_loaded(what: str) -> None:
    _, base, files = cold_base()
    engine = Engine()
    if what == "missing":
        files.remove(f"{DIRECTORY}/1.cold")
    elif what == "short":
        files.open_append(f"{DIRECTORY}/1.cold").truncate(100)
    if what != "none":
        open_cold(engine, files)
    texts = {
        "missing": "log/cold/1.cold, at byte 0: the file is missing; put it back where it was",
        "short": "log/cold/1.cold, at byte 100: it has 100 bytes, which do not contain the run",
        "none": "a stream needs the cold file 1.cold, but no cold files are open",
    }
    with pytest.raises(Damaged) as caught:
        read_rdb(io.BytesIO(base), engine.keyspace, now_ms=START_MS)
    assert texts[what] in str(caught.value)


def test_a_damaged_run_is_reported_by_what_reads_it_and_by_nothing_else() -> None:
    _, base, files = cold_base()
    inode = files.names[f"{DIRECTORY}/1.cold"]
    inode.data[60] ^= 1
    engine = loaded(base, files)
    assert talk(engine, b"XLEN s") == b":60\r\n"
    error = b"-COLDERR the entries 1-0 to 10-0 cannot be read: cold file log/cold/1.cold, at byte 32: "
    assert talk(engine, b"XRANGE s 1 2").startswith(error)
    assert b"$4\r\n11-0" in talk(engine, b"XRANGE s 11 11")
    with pytest.raises(DamagedColdRun, match="1-0 to 10-0"):
        inline(engine.keyspace, VERSIONS[0], START_MS)
    assert base_of(engine) == base, "a base that refers to it can still be written"


def test_every_changed_byte_of_a_base_is_rejected_or_harmless() -> None:
    _, base, files = cold_base(30)
    at = base.index(b"\x01s", 30) - 1
    assert base[at] == TYPE_COLD
    for offset in range(at, len(base)):
        for mask in (1, 0x80, 0xFF):
            changed = base[:offset] + bytes([base[offset] ^ mask]) + base[offset + 1 :]
            try:
                engine = loaded(changed, files)
            except Damaged:
                continue
            for line in (
                b"XLEN s",
                b"XINFO STREAM s",
                b"XTRIM s MAXLEN ~ 9",
                b"XDEL s 12-0",
                b"XADD s * f v",
            ):
                assert b"internal error" not in talk(engine, line), (offset, mask)


def test_no_payload_can_refer_to_files() -> None:
    _, base, _ = cold_base()
    at = base.index(b"\x01s", 30) - 1
    payload = bytes([TYPE_COLD]) + base[at + 3 : -9]
    with pytest.raises((BadPayload, ValueError)):
        restore(payload + b"\x0a\x00" + bytes(8), Keyspace(), START_MS)
