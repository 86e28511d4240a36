"""The simulated disk: a process sees a disk; after a crash only its guarantees have been kept."""

import contextlib
import random

import pytest

from headrace.persistence.data_directory import DiskDirectory
from simulation.disk import Platter, SimulatedFiles, boundaries

NAMES = ["a", "b", "dir/a", "dir/b"]


def after(files, mode="mixed", seeds=60, at=None):
    """The images that crashes at a boundary (the last one) may leave."""
    platter = Platter(files.image)
    for op in files.journal[:at]:
        platter.apply(op)
    return [platter.image(random.Random(seed), mode) for seed in range(seeds)]


def contents(files, name="a", **more):
    return {image.get(name) for image in after(files, **more)}


def synced(data=b"", name="a"):
    """A disk with one file that is there for certain."""
    files = SimulatedFiles()
    file = files.create(name)
    file.write(data)
    file.sync()
    files.sync_directory("")
    return files, file


# ---- as the process sees it


def step(files, chance):
    """One random operation; what came of it."""
    what, name, other = chance.choice("cawtrxlses"), chance.choice(NAMES), chance.choice(NAMES)
    try:
        if what in "caw":
            file = files.create(name) if what == "c" else files.open_append(name)
            taken = file.write(bytes(chance.choices(b"xyz", k=chance.randint(0, 9))))
            size = file.size()
            file.sync()
            file.close()
            return taken, size
        if what == "t":
            file = files.open_append(name)
            file.truncate(chance.randint(0, file.size()))
            file.write(b"T")
            file.close()
        elif what == "r":
            files.rename(name, other)
        elif what == "x":
            files.remove(name)
        elif what == "l":
            return files.list(""), files.list("dir"), files.list("none")
        elif what == "s":
            source = files.open_source(name)
            found = files.open_random_access(name)
            parts = found.size(), found.read_at(2, 3), found.read_at(0, 100)
            found.close()
            return source.size, source.read(3), source.read(100), source.read(1), parts
        elif what == "e":
            files.make_directory("dir")
            files.sync_directory("dir")
            return files.exists(name), files.exists("dir"), files.size(name)
    except FileNotFoundError:
        return "missing"
    return None


@pytest.mark.parametrize("seed", range(30))
def test_a_process_sees_it_as_a_real_directory(tmp_path, seed):
    real, simulated = DiskDirectory(str(tmp_path)), SimulatedFiles()
    one, other = random.Random(seed), random.Random(seed)
    for _ in range(80):
        assert step(simulated, one) == step(real, other)
    assert {name: bytes(inode.data) for name, inode in simulated.names.items()} == {
        str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }


# ---- what a crash leaves of a file


def test_what_was_synced_stays_and_the_rest_is_a_prefix():
    files, file = synced(b"base")
    file.write(b"12")
    file.write(b"34")
    assert contents(files, mode="kept") == {b"base1234"}
    assert contents(files, mode="forgotten") == {b"base"}
    assert contents(files, seeds=300) == {b"base", b"base1", b"base12", b"base123", b"base1234"}
    file.sync()
    assert contents(files) == {b"base1234"}


def test_a_power_cut_may_undo_a_truncation():
    files, file = synced(b"base")
    file.truncate(2)
    file.write(b"X")
    assert contents(files, seeds=300) == {b"base", b"ba", b"baX"}
    file.sync()
    assert contents(files) == {b"baX"}


def test_create_over_an_old_file_may_leave_the_old_one():
    files, _ = synced(b"old")
    files.create("a").write(b"n")
    assert contents(files, seeds=300) == {b"old", b"", b"n"}


def test_what_a_failed_sync_left_is_uncertain_for_ever():
    files, file = synced(b"base")
    file.write(b"12")
    files.faults.failing["sync"] = 1
    with pytest.raises(OSError, match="simulated fault"):
        file.sync()
    files.faults.failing.clear()
    file.write(b"34")
    file.sync()
    assert contents(files, seeds=300) == {b"base1234", b"base1\x0034", b"base\x00\x0034"}


def test_a_sync_covers_what_was_written_before_it_began():
    files, file = synced(b"base")
    file.write(b"12")
    began = file.inode.operations
    file.write(b"34")
    file.sync_up_to(began)
    assert contents(files, mode="forgotten") == {b"base12"}


# ---- what a crash leaves of names


def test_a_new_file_survives_only_after_its_directory_was_synced():
    files = SimulatedFiles()
    file = files.create("a")
    file.write(b"x")
    file.sync()
    assert contents(files) == {None, b"x"}
    files.sync_directory("")
    assert contents(files) == {b"x"}


def test_renames_are_atomic_and_survive_in_any_order():
    files, _ = synced(b"old")
    new = files.create("n")
    new.write(b"new")
    new.sync()
    files.sync_directory("")
    files.rename("n", "a")
    files.create("z")
    states = {(image.get("a"), image.get("n"), "z" in image) for image in after(files, seeds=300)}
    renamed, before = (b"new", None), (b"old", b"new")
    assert states == {(*before, False), (*before, True), (*renamed, False), (*renamed, True)}
    files.sync_directory("")
    assert {image["a"] for image in after(files)} == {b"new"}


def test_a_rename_may_be_durable_before_what_it_renamed():
    files, _ = synced(b"old")
    files.create("n").write(b"new")
    files.rename("n", "a")
    files.sync_directory("")
    assert contents(files, seeds=300) == {b"", b"n", b"ne", b"new"}


def test_a_removal_may_be_undone():
    files, _ = synced(b"x")
    files.remove("a")
    assert contents(files) == {b"x", None}


def test_a_directory_that_was_not_synced_takes_its_files_along():
    files = SimulatedFiles()
    files.make_directory("dir")
    files.create("dir/a").sync()
    files.sync_directory("dir")
    assert {tuple(image) for image in after(files)} == {(), ("dir/", "dir/a")}
    files.sync_directory("")
    assert {tuple(image) for image in after(files)} == {("dir/", "dir/a")}


# ---- faults, images, boundaries


def test_a_full_disk_writes_a_part_and_then_nothing():
    files, file = synced()
    files.faults.room = 3
    assert file.write(b"12345") == 3
    with pytest.raises(OSError, match="full disk"):
        file.write(b"45")
    files.faults.room = None
    assert file.write(b"45") == 2
    assert bytes(file.inode.data) == b"12345"


@pytest.mark.parametrize("what", ["write", "truncate", "create", "make_directory", "rename", "remove"])
def test_a_failed_operation_has_no_effect(what):
    files, file = synced(b"old")
    before = len(files.journal)
    files.faults.failing[what] = 1
    with pytest.raises(OSError, match="simulated fault"):
        {
            "write": lambda: file.write(b"x"),
            "truncate": lambda: file.truncate(0),
            "create": lambda: files.open_append("b"),
            "make_directory": lambda: files.make_directory("dir"),
            "rename": lambda: files.rename("a", "b"),
            "remove": lambda: files.remove("a"),
        }[what]()
    assert len(files.journal) == before
    assert files.list("") == ["a"]


def test_a_restart_begins_with_an_image_of_the_disk():
    files, file = synced(b"base")
    file.write(b"12")
    again = SimulatedFiles(after(files, mode="kept")[0])
    assert again.open_source("a").read(99) == b"base12"
    assert contents(again) == {b"base12"}


@pytest.mark.parametrize("seed", range(20))
def test_the_last_boundary_keeps_all_that_a_process_saw(seed):
    files, chance = SimulatedFiles(), random.Random(seed)
    for _ in range(60):
        with contextlib.suppress(OSError):
            step(files, chance)
    *_, (at, platter) = boundaries(files)
    image = platter.image(chance, "kept")
    assert at == len(files.journal)
    assert {name: data for name, data in image.items() if not name.endswith("/")} == {
        name: bytes(inode.data) for name, inode in files.names.items()
    }
