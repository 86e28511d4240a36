"""Cold files on a real disk: runs are read as they were written, and files go when nothing needs them."""

import contextlib
import gc
import os
import pathlib
import threading
from collections.abc import Iterator
from random import Random

import pytest

from headrace.errors import DamagedColdRun
from headrace.persistence.cold import cold_file
from headrace.persistence.cold.cold_file_check import check_cold_file
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.cold.run_place import RunPlace
from headrace.persistence.damage import Damaged
from persistence.cold_runs import Nodes, nodes, random_run
from persistence.faults import FaultyFiles

DIRECTORY = "log/cold"


@pytest.fixture
def cold(files: FaultyFiles) -> Iterator[ColdFiles]:
    with contextlib.closing(ColdFiles(files, DIRECTORY, file_bytes_max=4000, open_files_max=2)) as made:
        yield made


def path_of(files: FaultyFiles, name: str) -> pathlib.Path:
    return pathlib.Path(files.files.path(f"{DIRECTORY}/{name}"))


def written(cold: ColdFiles, seed: int, runs: int = 4) -> tuple[list[Nodes], list[RunPlace]]:
    """Write runs in two calls; return them and their places."""
    rng = Random(seed)
    made = [random_run(rng) for _ in range(runs)]
    return made, [*cold.write(made[: runs // 2]), *cold.write(made[runs // 2 :])]


def again(cold: ColdFiles, places: list[RunPlace]) -> tuple[ColdFiles, list[RunPlace]]:
    """Refer to the places as after a restart."""
    other = ColdFiles(cold.files, DIRECTORY)
    return other, [other.place_from_log(p.file.name, p.offset, p.size, p.checksum) for p in places]


def test_runs_are_read_as_they_were_written_also_after_a_restart(cold: ColdFiles) -> None:
    made, places = written(cold, 1, 30)
    assert [cold.read(place) for place in places] == made
    assert len({place.file.name for place in places}) > 3
    assert all(place.file.size <= 4000 for place in places)
    other, found = again(cold, places)
    assert [other.read(place) for place in found] == made
    assert other.totals() == cold.totals()
    (more,) = other.write([made[0]])
    numbers = [cold_file.file_number(place.file.name) for place in places]
    assert cold_file.file_number(more.file.name) == max(numbers) + 1


def test_a_run_larger_than_a_file_has_one_of_its_own(cold: ColdFiles) -> None:
    large = nodes([os.urandom(9000)])
    places = cold.write([nodes([b"a"]), large, nodes([b"b"])])
    assert [place.file.name for place in places] == ["1.cold", "2.cold", "3.cold"]
    assert cold.read(places[1]) == large
    assert cold.write([]) == []


def test_a_write_syncs_each_file_once_and_new_names_before_it_returns(
    cold: ColdFiles, files: FaultyFiles
) -> None:
    def syncs() -> list[str]:
        found = [line for line in files.log if not line.startswith("write ")]
        files.log.clear()
        return found

    syncs()
    kept = [cold.write([nodes([b"a"]), nodes([b"b"])])]
    assert syncs() == [
        "make_directory log",
        "sync_directory",
        "make_directory log/cold",
        "sync_directory log",
        "create log/cold/1.cold",
        "sync log/cold/1.cold",
        "sync_directory log/cold",
    ]
    kept.append(cold.write([nodes([b"c"])]))
    assert syncs() == ["sync log/cold/1.cold"]
    kept.append(cold.write([nodes([os.urandom(2500)]), nodes([os.urandom(2500)])]))
    assert syncs() == [
        "sync log/cold/1.cold",
        "create log/cold/2.cold",
        "sync log/cold/2.cold",
        "sync_directory log/cold",
    ]


@pytest.mark.parametrize(
    "operation", ["create", "make_directory", "write", "sync", "sync_directory", "short write"]
)
@pytest.mark.parametrize("before", [0, 2])  # runs in the current file, with which there is a directory
def test_a_failed_write_leaves_earlier_runs_and_begins_another_file(
    cold: ColdFiles, files: FaultyFiles, operation: str, before: int
) -> None:
    rng = Random(before)
    made = [random_run(rng, 100) for _ in range(before)]
    places = cold.write(made)
    if before and operation == "make_directory":
        files.fail("sync")  # after a failure the directory is made again if it is gone
        with pytest.raises(OSError, match="fails"):
            cold.write([random_run(rng)])
    if operation == "short write":
        files.short = 5
        files.fail("write", 1)
    else:
        files.fail(operation)
    more = [nodes([rng.randbytes(1500)]) for _ in range(4)]  # several files
    with pytest.raises(OSError, match="fails"):
        cold.write(more)
    gc.collect()
    assert [cold.read(place) for place in places] == made
    used = {place.file.name for place in places}
    files.faults.clear()
    new = cold.write(more)
    assert [cold.read(place) for place in [*places, *new]] == [*made, *more]
    assert not used & {place.file.name for place in new}
    cold.remove_unreferenced()
    assert cold.totals().file_count == len({place.file.name for place in [*places, *new]})
    for name in files.list(DIRECTORY):
        assert not cold.verify(name).damage


@pytest.mark.parametrize("size", [0, 100, 5000])
@pytest.mark.parametrize("then", ["write", "write_much", "close"])
def test_nothing_is_appended_to_a_file_that_others_have_cut_or_extended(
    cold: ColdFiles, files: FaultyFiles, size: int, then: str
) -> None:
    """Its size would be right again, so the loss would not be noticed."""
    cold.write([nodes([b"a" * 300])])
    path = path_of(files, "1.cold")
    os.truncate(path, size)
    if then == "close":
        cold.close()
        assert path.stat().st_size == min(size, cold.totals().bytes)
        return
    (place,) = cold.write([nodes([b"b" * (10 if then == "write" else 3900)])])
    assert place.file.name == "2.cold"
    assert path.stat().st_size < size or size <= 100, "what others have appended is cut off"
    assert size == 5000 or path.stat().st_size == size


def test_what_is_read_back_differently_is_an_error(cold: ColdFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = cold.write([nodes([b"a"])])
    monkeypatch.setattr(ColdFiles, "_read", lambda self, place, decode: (b"", 1))
    with pytest.raises(OSError, match="other nodes are read back"):
        cold.write([nodes([b"b"])])
    monkeypatch.undo()
    real = cold_file.pack_run
    monkeypatch.setattr(cold_file, "pack_run", lambda run, codec: real(run, codec)._replace(checksum=5))
    with pytest.raises(OSError, match=r"cannot be read back: .*another run"):
        cold.write([nodes([b"b"])])
    monkeypatch.undo()
    (place,) = cold.write([nodes([b"b"])])
    assert place.file is not first.file and cold.read(place) == nodes([b"b"])


# ---- damage


def test_every_changed_byte_of_a_file_is_found_or_harmless(cold: ColdFiles, files: FaultyFiles) -> None:
    made, places = written(cold, 3)
    for sealed in (False, True):
        if sealed:
            cold.close()
        (path,) = path_of(files, "").glob("*.cold")
        whole = path.read_bytes()
        report = check_cold_file(files, f"{DIRECTORY}/1.cold", 1)
        assert (report.sealed, len(report.readable_runs), report.tail_bytes, report.damage) == (
            sealed,
            4,
            0,
            [],
        )
        assert report.node_count == sum(map(len, made))
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            report = check_cold_file(files, f"{DIRECTORY}/1.cold", 1)
            assert report.damage or report.tail_bytes
            unreadable = 0
            for run, place in zip(made, places, strict=True):
                try:
                    assert cold.read(place) == run
                except DamagedColdRun as error:
                    unreadable += (error.file, error.offset) == (place.file.path, place.offset)
            assert unreadable == any(place.offset <= at < place.offset + place.size for place in places)
        path.write_bytes(whole)


def test_every_cut_of_a_file_is_found(cold: ColdFiles, files: FaultyFiles) -> None:
    made, places = written(cold, 4)
    cold.close()
    path = path_of(files, "1.cold")
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        report = check_cold_file(files, f"{DIRECTORY}/1.cold", 1)
        assert not report.sealed and bool(report.damage) == (size < cold_file.HEADER_BYTES)
        readable = [place for place in places if place.offset + place.size <= size]
        assert [entry.offset for entry in report.readable_runs] == [place.offset for place in readable]
        for run, place in zip(made, places, strict=True):
            if place in readable:
                assert cold.read(place) == run
            else:
                with pytest.raises(DamagedColdRun, match="ends before the end of the run"):
                    cold.read(place)


def test_the_error_of_a_missing_file_names_it(cold: ColdFiles, files: FaultyFiles) -> None:
    (place,) = cold.write([nodes([b"a"])])
    cold.close()
    path_of(files, "1.cold").unlink()
    with pytest.raises(DamagedColdRun) as caught:
        cold.read(place)
    assert str(caught.value) == "COLDERR cold file log/cold/1.cold, at byte 32: the file is missing"
    (found,) = cold.verify("1.cold").damage
    assert str(found) == "log/cold/1.cold, at byte 0: it cannot be read: no such file or directory"


def test_places_are_only_in_files_that_are_there(cold: ColdFiles, files: FaultyFiles) -> None:
    (place,) = cold.write([nodes([b"a"])])
    assert cold.open("1.cold") is place.file
    path_of(files, "4.cold").mkdir()
    for name, what in {
        "../1.cold": "not the name of a cold file",
        "4.cold": "is a directory",
        "5.cold": "the file is missing; put it back",
    }.items():
        with pytest.raises(Damaged, match=what):
            cold.place_from_log(name, place.offset, place.size, place.checksum)
    for offset, size in ((place.offset, place.size + 1), (place.offset - 1, place.size), (1 << 70, 5)):
        with pytest.raises(Damaged, match="do not contain the run"):
            cold.place_from_log("1.cold", offset, size, place.checksum)
    wrong = cold.place_from_log("1.cold", place.offset, place.size, place.checksum ^ 1)
    with pytest.raises(DamagedColdRun, match="another run is stored there"):
        cold.read(wrong)


# ---- the life of files


def test_a_file_is_removed_when_neither_a_place_nor_a_manifest_needs_it(
    cold: ColdFiles, files: FaultyFiles
) -> None:
    places = cold.write([nodes([os.urandom(3000)]) for _ in range(4)])
    cold.close()
    assert cold.remove_unreferenced() == 0
    cold.set_needed_names(["1.cold", "2.cold"])
    del places[1:3]
    assert cold.remove_unreferenced() == 1
    assert files.list(DIRECTORY) == ["1.cold", "2.cold", "4.cold"]
    cold.set_needed_names([])
    files.fail("remove")
    assert cold.remove_unreferenced() == 0
    assert cold.remove_unreferenced() == 1
    assert files.list(DIRECTORY) == ["1.cold", "4.cold"]
    del places[0]
    assert cold.remove_unreferenced() == 1
    assert [place.file.name for place in cold.write([nodes([b"a"])])] == ["5.cold"]


def test_a_file_that_is_being_written_is_not_removed(cold: ColdFiles, files: FaultyFiles) -> None:
    cold.write([nodes([b"a"])])
    assert cold.remove_unreferenced() == 0
    cold.close()
    assert cold.remove_unreferenced() == 1
    assert cold.totals() == (0, 0, 0)


def test_files_that_nothing_needs_at_the_start_are_orphans(cold: ColdFiles, files: FaultyFiles) -> None:
    places = cold.write([nodes([os.urandom(3000)]) for _ in range(4)])
    cold.close()
    path_of(files, "notes.txt").write_text("of somebody else")
    other = ColdFiles(files, DIRECTORY)
    other.set_needed_names(["1.cold"])
    kept = other.open("3.cold")
    assert other.orphans() == ["2.cold", "4.cold"]
    assert other.remove_orphans() == (2, places[1].file.size + places[3].file.size)
    assert files.list(DIRECTORY) == ["1.cold", "3.cold", "notes.txt"]
    assert other.remove_orphans() == (0, 0)
    assert other.totals() == (2, places[0].file.size + kept.size, places[0].file.size + places[2].size)
    assert [place.file.name for place in other.write([nodes([b"a"])])] == ["4.cold"]


def test_totals_count_dropped_runs_as_dead(cold: ColdFiles) -> None:
    runs = [nodes([os.urandom(100)]) for _ in range(3)]
    places = cold.write(runs)
    size = places[0].size
    assert cold.totals() == (1, 32 + 3 * size, 0)
    del places[1]
    assert cold.totals().dead_bytes == size
    cold.close()
    assert cold.totals() == (1, 32 + 3 * size + cold_file.index_size(3), size)


def test_a_file_is_stale_when_most_of_it_is_dead_and_it_is_not_written_any_more(cold: ColdFiles) -> None:
    runs = [nodes([os.urandom(900)]) for _ in range(6)]
    places = cold.write(runs)
    first, last = places[0].file, places[5].file
    assert [place.file for place in places] == [first] * 3 + [last] * 3
    kept = places[0]
    del places[2:5]
    assert not cold.has_stale_files() and not cold.is_stale(first)  # a third
    del places[:2]
    assert cold.has_stale_files() and cold.is_stale(first) and not cold.is_stale(last)
    places.clear()
    assert not cold.is_stale(last)  # the next run is appended to it
    other, _ = again(cold, [kept])
    assert other.has_stale_files()
    del kept, first
    assert not cold.has_stale_files()  # it can be removed


# ---- descriptors and threads


def descriptors(directory: pathlib.Path) -> int:
    """Return how many files of a directory are open."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(os.readlink(link).startswith(str(directory)) for link in links if os.path.lexists(link))


def test_at_most_a_few_files_are_open(cold: ColdFiles, tmp_path: pathlib.Path) -> None:
    runs = [nodes([os.urandom(3000)]) for _ in range(6)]
    places = cold.write(runs)
    for _ in range(3):
        for run, place in zip(runs, places, strict=True):
            assert cold.read(place) == run
    assert descriptors(tmp_path) == 3  # two to read, one to write
    cold.close()
    assert descriptors(tmp_path) == 0
    assert cold.read(places[0]) == runs[0]
    cold.close()


def test_threads_read_while_others_write_and_files_are_removed(cold: ColdFiles) -> None:
    rng = Random(5)
    runs = [random_run(rng) for _ in range(40)]
    places = cold.write(runs)
    written_by_threads: list[tuple[list[Nodes], list[RunPlace]]] = []

    def read(seed: int) -> None:
        mine = Random(seed)
        for _ in range(400):
            at = mine.randrange(len(runs))
            assert cold.read(places[at]) == runs[at]

    def write(seed: int) -> None:
        mine = Random(seed)
        for _ in range(30):
            made = [random_run(mine) for _ in range(3)]
            written_by_threads.append((made[1:], cold.write(made)[1:]))
            cold.remove_unreferenced()

    threads = [
        threading.Thread(target=work, args=(i,)) for i, work in enumerate([read, read, read, write, write])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written_by_threads) == 60
    for made, found in written_by_threads:
        assert [cold.read(place) for place in found] == made
    totals = cold.totals()
    assert 0 < totals.dead_bytes < totals.bytes


def test_no_lock_is_held_while_files_are_removed(cold: ColdFiles, files: FaultyFiles) -> None:
    places = [cold.write([nodes([os.urandom(4000)])]) for _ in range(50)]
    cold.close()
    del places[:40]
    gc.collect()
    remove, found = files.remove, []

    def remove_while_others_work(name: str) -> None:
        other = threading.Thread(target=lambda: found.append(cold.totals().file_count))
        other.start()
        other.join(10)
        remove(name)

    files.remove = remove_while_others_work  # type: ignore[method-assign]
    assert cold.remove_unreferenced() == 40
    assert found == [10] * 40
    assert cold.orphans() == []


def test_a_store_removes_files_in_another_thread(cold: ColdFiles) -> None:
    store, jobs = ColdStore(cold), []
    cold.write([nodes([b"a"])])
    cold.close()
    store.run_in_background = jobs.append
    assert store.remove_unreferenced() == store.remove_unreferenced() == 0
    assert store.file_count() == 1
    (job,) = jobs
    job()
    assert store.file_count() == 0
