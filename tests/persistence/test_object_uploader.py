"""Cold files move on to an object store, here a directory: nothing is lost when it fails or all is killed."""

import contextlib
import gc
import os
import pathlib
from collections.abc import Iterator

import pytest

from headrace.errors import DamagedColdRun, UsageError
from headrace.persistence.aof import log_files
from headrace.persistence.cold import cold_file, object_store, object_uploader
from headrace.persistence.cold.cold_file import DamagedBytes
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.object_store import ObjectStore, StoreError, StoreUnreachable, check_url
from headrace.persistence.cold.object_uploader import ObjectUploader
from headrace.persistence.cold.run_place import RunPlace
from headrace.persistence.cold.store_identity import ForeignStore
from headrace.persistence.cold.whole_file_check import check_checksums
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DiskDirectory
from persistence.cold_runs import Nodes, nodes
from persistence.faults import FaultyFiles
from support.waiting import wait_until

DIRECTORY = "log/cold"


class FaultyStore(ObjectStore):
    """A directory as a store, in which calls fail: each name of a method with how often."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(f"file://{path}", 1)
        self.path = path
        self.faults: dict[str, int] = {}
        self.e_tag = ""
        self.damage = False  # what is uploaded is changed

    def fail(self, method: str) -> None:
        if self.faults.get(method, 0) > 0:
            self.faults[method] -= 1
            raise StoreUnreachable(f"{method} fails")

    def get_range(self, name: str, offset: int, size: int, seconds: float = 0.0) -> bytes:
        self.fail("get_range")
        return super().get_range(name, offset, size, seconds)

    def put(self, name: str, data: bytes, *, new: bool = False) -> None:
        self.fail("put")
        super().put(name, data[:-1] + b"?" if self.damage and name.endswith(".cold") else data, new=new)
        self.fail("put answer")

    def delete(self, name: str) -> None:
        self.fail("delete")
        super().delete(name)

    def head(self, name: str) -> object_store.ObjectInfo:
        self.fail("head")
        found = super().head(name)
        return found._replace(e_tag=self.e_tag or found.e_tag)

    def objects(self) -> list[str]:
        return sorted(each.name for each in self.path.glob("*.cold"))


class World:
    """The cold files of one directory, with a store, through several lives."""

    def __init__(self, files: FaultyFiles, path: pathlib.Path) -> None:
        self.files = files
        self.path = path
        self.lives: list[ObjectUploader] = []
        self.start()

    def start(self, local_bytes: int = 0, directory: str = DIRECTORY) -> None:
        self.cold = ColdFiles(self.files, directory, file_bytes_max=4000)
        self.store = FaultyStore(self.path)
        self.uploader = ObjectUploader(self.cold, self.store, local_bytes)
        self.lives.append(self.uploader)
        self.uploader.attach_store(1)

    def crash(self) -> None:
        """End this life without anything that a killed process would not do."""
        self.uploader._closed = True

    def restart(self, places: list[RunPlace], local_bytes: int = 0) -> list[RunPlace]:
        """Return the places as a new process finds them, which has begun."""
        self.start(local_bytes)
        found = [self.cold.place_from_log(p.file.name, p.offset, p.size, p.checksum) for p in places]
        self.cold.set_needed_names([])
        self.cold.remove_orphans()
        self.uploader.start_thread()
        return found

    def local(self) -> list[str]:
        return [name for name in self.files.list(DIRECTORY) if name.endswith(".cold")]

    def settled(self) -> bool:
        """Do what the thread does, once; return whether all succeeded."""
        return self.uploader._step()


@pytest.fixture
def world(files: FaultyFiles, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(object_uploader, "RETRY_S", 0.01)
    made = World(files, tmp_path / "store")
    yield made
    for each in made.lives:
        each.close()
    made.cold.close()


def written(cold: ColdFiles, runs: int = 4) -> tuple[list[Nodes], list[RunPlace]]:
    """Write runs, two in each file; return them and their places."""
    made = [nodes([os.urandom(1500)], 1 + i) for i in range(runs)]
    places = cold.write(made)
    cold.close()  # seals the last file
    return made, places


def test_sealed_files_are_uploaded_and_read_back_by_ranges(world: World) -> None:
    made, places = written(world.cold)
    world.uploader.start_thread()
    wait_until(lambda: world.local() == [] and len(world.store.objects()) == 2)
    assert [world.cold.read(place) for place in places] == made
    assert world.store.reads == 4 and world.uploader.uploads == 2 and world.uploader.last_error == ""
    found = world.restart(places)
    assert [world.cold.read(place) for place in found] == made
    assert world.cold.totals().file_count == 2


def test_the_file_to_which_runs_are_appended_stays(world: World) -> None:
    (place,) = world.cold.write([nodes([b"a"])])
    world.uploader.start_thread()
    assert world.settled() and world.store.objects() == [] and world.local() == [place.file.name]


def test_local_copies_stay_up_to_the_limit_those_that_were_read_last(world: World) -> None:
    _, places = written(world.cold, 6)
    sizes = [world.files.size(world.cold.path(name)) for name in world.local()]
    world.uploader.local_bytes_max = sum(sizes)
    assert world.settled() is True and len(world.local()) == 3
    world.uploader.start_thread()
    wait_until(lambda: world.uploader.uploads == 3)
    world.cold.read(places[0])
    world.uploader.set_local_bytes_max(sum(sizes) - 1)
    wait_until(lambda: world.local() == ["1.cold", "3.cold"])
    world.uploader.set_local_bytes_max(sizes[0])
    wait_until(lambda: world.local() == ["1.cold"])


def test_a_file_that_left_the_data_directory_is_not_monitored(world: World) -> None:
    _, places = written(world.cold)
    assert list(world.cold.identities()) == ["1.cold", "2.cold"]
    world.cold.set_needed_names(["1.cold", "2.cold"])
    places.clear()  # the manifest needs the files, and no run does
    gc.collect()
    world.uploader.start_thread()
    wait_until(lambda: world.local() == [])
    assert world.cold.identities() == {}


@pytest.mark.parametrize("fault", ["put", "put answer", "head"])
def test_a_failed_upload_keeps_the_file_is_counted_and_tried_again(world: World, fault: str) -> None:
    made, places = written(world.cold)
    world.store.faults = {fault: 3}
    world.uploader.start_thread()
    wait_until(lambda: world.local() == [])
    assert world.uploader.failures == 3 and world.uploader.last_error in ("", f"{fault} fails")
    assert [world.cold.read(place) for place in places] == made
    assert len(world.store.objects()) == 2


def test_pauses_double_up_to_the_maximum_while_the_store_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            world.uploader.close()

    monkeypatch.setattr(object_uploader, "RETRY_S", 1.0)
    monkeypatch.setattr(object_uploader, "RETRY_S_MAX", 5.0)
    monkeypatch.setattr(world.uploader, "_step", lambda: False)
    monkeypatch.setattr(world.uploader, "_sleep", sleep)
    world.uploader._run()
    assert pauses == [1, 2, 4, 5, 5]


def test_a_file_is_removed_only_when_the_store_has_exactly_its_bytes(world: World) -> None:
    made, places = written(world.cold)
    world.store.damage = True
    world.uploader.start_thread()
    wait_until(lambda: world.uploader.failures >= 2)
    assert world.local() == ["1.cold", "2.cold"] and "has other bytes" in world.uploader.last_error
    world.store.damage = False
    wait_until(lambda: world.local() == [])
    assert [world.cold.read(place) for place in places] == made


def test_a_file_that_is_read_wrongly_is_not_uploaded(world: World) -> None:
    made, places = written(world.cold)
    path = pathlib.Path(world.files.files.path(world.cold.path("1.cold")))
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    world.uploader.start_thread()
    wait_until(lambda: world.uploader.uploads == 1 and world.uploader.failures > 0)
    assert "1.cold is not uploaded: the checksum of the run is wrong" in world.uploader.last_error
    path.write_bytes(whole)
    wait_until(lambda: world.local() == [])
    assert [world.cold.read(place) for place in places] == made


def test_every_changed_byte_of_a_run_is_found_before_the_upload(world: World) -> None:
    written(world.cold)
    data = pathlib.Path(world.files.files.path(world.cold.path("1.cold"))).read_bytes()
    check_checksums(data, 1)
    for at in range(0, len(data) - len(cold_file.END_TAG), 7):  # without it a file is as a crash leaves it
        with pytest.raises(DamagedBytes):
            check_checksums(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], 1)
    for end in range(32, len(data) - 1, 100):
        check_checksums(data[:end], 1)  # as a crash may leave it


def test_a_run_that_cannot_be_read_is_an_error_with_file_and_store(world: World) -> None:
    made, places = written(world.cold)
    world.uploader.start_thread()
    wait_until(lambda: world.local() == [])
    world.store.faults = {"get_range": 1}
    with pytest.raises(DamagedColdRun) as caught:
        world.cold.read(places[0], "1-0 to 2-0")
    text = "COLDERR the entries 1-0 to 2-0 cannot be read: cold file log/cold/1.cold, at byte 32: get_range"
    assert str(caught.value) == f"{text} fails"
    assert [world.cold.read(place) for place in places] == made
    for each in world.path.glob("*.cold"):
        each.unlink()
    with pytest.raises(DamagedColdRun, match=r"file://.*/store: .*not found"):
        world.cold.read(places[0])


def test_a_failed_read_of_the_store_is_reported_until_a_call_succeeds(world: World) -> None:
    store = world.store
    store.put("x", b"text")
    (store.path / "x").rename(store.path / "y")
    with pytest.raises(StoreError):
        store.get_range("x", 0, 4)
    assert "not found" in world.uploader.store_error and store.read_failures == 1
    assert store.get_range("y", 0, 4) == b"text" and world.uploader.store_error == ""


def test_a_damaged_local_copy_is_read_from_the_store(world: World) -> None:
    made, places = written(world.cold)
    world.uploader.local_bytes_max = 1 << 20
    world.uploader.start_thread()
    wait_until(lambda: world.uploader.uploads == 2)
    path = pathlib.Path(world.files.files.path(world.cold.path("1.cold")))
    path.write_bytes(b"?" * path.stat().st_size)
    assert [world.cold.read(place) for place in places] == made
    path.write_bytes(b"?")
    assert [world.cold.read(place) for place in world.restart(places, 1 << 20)] == made


def test_objects_are_deleted_with_their_last_reference(world: World) -> None:
    _, places = written(world.cold)
    world.uploader.start_thread()
    wait_until(lambda: world.local() == [])
    world.cold.set_needed_names(["1.cold"])
    places.clear()
    gc.collect()
    world.store.faults = {"delete": 2}
    assert world.cold.remove_unreferenced() == 1
    wait_until(lambda: [name[0] for name in world.store.objects()] == ["1"])
    world.cold.set_needed_names([])
    world.cold.remove_unreferenced()
    wait_until(lambda: world.store.objects() == [])
    wait_until(lambda: [name for name in world.files.list(DIRECTORY) if "cold" in name] == [])


def test_a_number_is_not_used_again_while_an_object_has_it(world: World) -> None:
    _, places = written(world.cold)
    world.uploader.start_thread()
    wait_until(lambda: world.local() == [])
    world.crash()
    del places
    without = ColdFiles(world.files, DIRECTORY)  # without a store, and without references
    without.remove_orphans()
    assert without.write([nodes([b"a"])])[0].file.name == "3.cold"
    with pytest.raises(Damaged, match="the file is in an object store; give its URL"):
        without.place_from_log("1.cold", 32, 10, 0)


@pytest.mark.parametrize("moment", ["put", "record", "remove"])
@pytest.mark.parametrize("needed", [True, False])
def test_a_process_that_is_killed_during_an_upload_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, moment: str, needed: bool
) -> None:
    made, places = written(world.cold)

    def killed(*_: object) -> None:
        world.crash()
        raise SystemExit

    with monkeypatch.context() as patched:
        if moment == "put":
            patched.setattr(world.uploader, "_confirm", killed)
        elif moment == "record":
            patched.setattr(world.uploader.uploaded_files, "add", killed)
        else:
            patched.setattr(world.cold, "remove_local", killed)
        with contextlib.suppress(SystemExit):
            world.uploader._on_sealed("1.cold")
            world.uploader._on_sealed("2.cold")
            world.settled()
    assert len(world.store.objects()) == (2 if moment == "remove" else 1)
    if needed:
        found = world.restart(places)
        wait_until(lambda: world.local() == [])
        assert [world.cold.read(place) for place in found] == made
        assert len(world.store.objects()) == 2
    else:
        world.restart([])
        wait_until(lambda: world.store.objects() == [] and world.local() == [])


def test_only_objects_of_the_prefix_that_no_file_refers_to_are_deleted(world: World) -> None:
    _, places = written(world.cold)
    world.uploader.start_thread()
    wait_until(lambda: world.local() == [])
    mine = world.store.objects()
    strange = ["1-0123456789abcdef.cold", "9-0123456789abcdef.cold"]
    kept = ["0-0123456789abcdef.cold", "1-0123.cold", "notes.cold"]
    for name in [*strange, *kept]:
        (world.path / name).write_bytes(b"?")
    (world.path.parent / strange[0]).write_bytes(b"?")
    world.crash()
    assert world.restart(places)
    wait_until(lambda: world.store.objects() == sorted([*mine, *kept]))
    assert (world.path.parent / strange[0]).exists()


def test_without_a_record_a_file_is_found_in_the_store(world: World) -> None:
    made, places = written(world.cold)
    world.uploader.start_thread()
    wait_until(lambda: world.local() == [])
    world.crash()
    for name in world.files.list(DIRECTORY):
        if name.endswith(".stored"):
            pathlib.Path(world.files.files.path(f"{DIRECTORY}/{name}")).write_text("1-?.cold 5\n")
    found = world.restart(places)
    assert [world.cold.read(place) for place in found] == made
    assert world.store.objects() and world.uploader.uploaded_files.totals()[0] == 2


def test_a_manifest_may_name_files_that_are_only_in_the_store(world: World) -> None:
    _, places = written(world.cold)
    world.uploader.start_thread()
    wait_until(lambda: world.local() == [])
    lines = log_files.cold_file_lines(world.files, {place.file for place in places}, {})
    assert [line.file for line in lines] == ["1.cold", "2.cold"]
    places[0].file.in_store = False
    with pytest.raises(FileNotFoundError):
        log_files.cold_file_lines(world.files, [places[0].file], {})


# ---- whose store it is


def test_a_store_serves_one_data_directory(world: World, tmp_path: pathlib.Path) -> None:
    written(world.cold)
    (tmp_path / "other").mkdir()
    other = ColdFiles(DiskDirectory(str(tmp_path / "other")), DIRECTORY)
    uploader = ObjectUploader(other, ObjectStore(f"file://{world.path}"))
    with pytest.raises(ForeignStore, match="belongs to another data directory"):
        uploader.attach_store(1)
    world.restart([])  # the owner starts again


def test_a_copy_of_a_data_directory_does_not_own_the_store(world: World, tmp_path: pathlib.Path) -> None:
    mine = pathlib.Path(world.files.files.path(f"{DIRECTORY}/store-identity"))
    (tmp_path / "copy/log/cold").mkdir(parents=True)
    (tmp_path / "copy/log/cold/store-identity").write_bytes(mine.read_bytes())
    cold = ColdFiles(DiskDirectory(str(tmp_path / "copy")), DIRECTORY)
    with pytest.raises(ForeignStore, match="remove the object store-identity there and start again"):
        ObjectUploader(cold, ObjectStore(f"file://{world.path}")).attach_store(1)
    (world.path / "store-identity").unlink()
    ObjectUploader(cold, ObjectStore(f"file://{world.path}")).attach_store(1)


def test_a_running_process_notices_that_the_store_has_another_owner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_uploader, "CHECK_OWNER_S", 0)
    (world.path / "store-identity").write_text("another")
    _, places = written(world.cold)
    world.uploader.start_thread()
    wait_until(lambda: "belongs to another" in world.uploader.last_error)
    assert world.store.objects() == [] and world.local() == ["1.cold", "2.cold"] and places


def test_a_store_without_the_files_of_the_directory_is_refused(world: World) -> None:
    _, places = written(world.cold)
    world.uploader.start_thread()
    wait_until(lambda: world.local() == [])
    world.path = world.path.with_name("empty")
    with pytest.raises(ForeignStore, match="does not have the cold files of this data directory, such as 1-"):
        world.start()
    assert places


def test_a_start_without_the_network_reads_what_is_local_and_uploads_later(world: World) -> None:
    made, places = written(world.cold)
    world.crash()
    identity = world.path / "store-identity"
    text = identity.read_bytes()
    identity.unlink()
    identity.mkdir()  # it cannot be read
    found = world.restart(places)
    assert [world.cold.read(place) for place in found] == made and world.local() == ["1.cold", "2.cold"]
    wait_until(lambda: world.uploader.last_error)
    identity.rmdir()
    identity.write_bytes(text)
    wait_until(lambda: world.local() == [])
    assert [world.cold.read(place) for place in found] == made


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://host/x", "must begin with s3://"),
        ("s3:///x", "names no bucket"),
        ("s3://key:secret@bucket/x", "read from the environment"),
        ("s3://bucket/x?sig=1", "read from the environment"),
        ("file://x", "by its whole path"),
        ("file:///", "by its whole path"),
        ("", "must begin with s3://"),
    ],
)
def test_other_urls_are_refused(url: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)
