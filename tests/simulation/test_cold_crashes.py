"""Power cuts and disk faults while cold runs are written: what write() has returned can be read."""

import contextlib
import itertools
import random
import struct

import pytest

from headrace.errors import HeadraceError
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.run_place import RunPlace
from simulation.disk import Image, SimulatedFiles, boundaries

FAULTY = ("write", "sync", "create", "sync_directory", "truncate", "read", "remove", "make_directory")
MODES = ["kept", "forgotten", "torn", "mixed"]
Nodes = list[tuple[bytes, bytes]]


def make_run(rng: random.Random) -> Nodes:
    first = rng.randrange(1, 1 << 40)
    return [
        (struct.pack(">QQ", first + i, 0), struct.pack("<IH", size + 7, 1) + rng.randbytes(size) + b"\xff")
        for i, size in enumerate(rng.choices(range(90), k=rng.randint(1, 4)))
    ]


class Life:
    """Writes and drops runs on a simulated disk, and remembers what must be readable since when."""

    def __init__(self, seed: int, faults: bool) -> None:
        self.rng = random.Random(seed)
        self.files = SimulatedFiles(chance=random.Random(seed + 1))
        if faults:
            kinds = (
                "write",
                "sync",
                "create",
                "sync_directory",
                "truncate",
                "read",
                "remove",
                "make_directory",
            )
            self.files.faults.failing = dict.fromkeys(kinds, 0.06)
            self.files.faults.short = 0.2
        self.cold = ColdFiles(self.files, "cold", file_bytes_max=900)
        self.held: list[tuple[Nodes, RunPlace]] = []
        # run, name, offset, size, checksum; from which boundary on, and up to which
        self.promised: list[tuple[Nodes, tuple[str, int, int, int], int, list[int]]] = []
        self.failures = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.rng.random() < 0.7:
                self.write()
            elif self.held:
                self.drop()

    def write(self) -> None:
        runs = [make_run(self.rng) for _ in range(self.rng.randint(1, 4))]
        try:
            places = self.cold.write(runs)
        except OSError:
            self.failures += 1
            return
        since = len(self.files.journal)
        for run, place in zip(runs, places, strict=True):
            self.held.append((run, place))
            where = (place.file.name, place.offset, place.size, place.checksum)
            self.promised.append((run, where, since, [1 << 60]))

    def drop(self) -> None:
        """Drop all runs of a file, so that it is removed, sometimes after a while."""
        name = self.rng.choice(self.held)[1].file.name
        self.held = [one for one in self.held if one[1].file.name != name]
        for _, (file, *_), _, until in self.promised:
            if file == name:
                until[0] = min(until[0], len(self.files.journal))
        self.cold.remove_unreferenced()

    def check_now(self) -> None:
        """Check that the process reads what it holds, whatever failed before."""
        self.files.faults.failing = {}
        assert [self.cold.read(place) for _, place in self.held] == [run for run, _ in self.held]

    def check_image(self, at: int, image: Image, rng: random.Random) -> None:
        """Start on what a crash at a boundary has left; read what was promised, and write more."""
        cold = ColdFiles(SimulatedFiles(image), "cold")
        promised = [one for one in self.promised if one[2] <= at <= one[3][0]]
        cold.set_needed_names({where[0] for _, where, _, _ in promised})
        places = [cold.place_from_log(name, *rest) for _, (name, *rest), _, _ in promised]
        cold.remove_orphans()
        more = make_run(rng)
        places += cold.write([more])
        assert [cold.read(place) for place in places] == [*(run for run, *_ in promised), more]
        assert all(not cold.verify(name).damage for name in {place.file.name for place in places})


@pytest.mark.parametrize("faults", [False, True], ids=["healthy", "faulty"])
@pytest.mark.parametrize("seed", range(8))
def test_what_was_written_is_read_after_a_power_cut_at_every_operation(seed: int, faults: bool) -> None:
    life = Life(seed, faults)
    life.run(18)
    life.check_now()
    assert (life.failures > 0) == faults, (
        "the seed injects no fault" if faults else "it fails on a healthy disk"
    )
    assert life.promised
    checked = 0
    for at, platter in boundaries(life.files):
        for mode in MODES:
            rng = random.Random(f"{seed} {at} {mode}")
            life.check_image(at, platter.image(rng, mode), rng)
            checked += 1
    assert checked == 4 * (len(life.files.journal) + 1)


def test_a_full_disk_loses_no_run_and_takes_more_when_there_is_room() -> None:
    rng = random.Random(1)
    files = SimulatedFiles()
    cold = ColdFiles(files, "cold", file_bytes_max=2000)
    held: list[tuple[Nodes, RunPlace]] = []
    for room in itertools.chain(range(0, 1500, 7), [100_000]):
        files.faults.room = room
        runs = [make_run(rng) for _ in range(3)]
        with contextlib.suppress(OSError):
            held += zip(runs, cold.write(runs), strict=True)
        assert [cold.read(place) for _, place in held] == [run for run, _ in held]
    assert len(held) > 3
    used = {place.file.name for _, place in held}
    assert set(files.list("cold")) == used, "files without a run take room"


def test_an_error_of_the_disk_while_reading_is_told_and_passes() -> None:
    files = SimulatedFiles()
    cold = ColdFiles(files, "cold")
    run = make_run(random.Random(1))
    (place,) = cold.write([run])
    files.faults.failing = {"read": 1.0}
    with pytest.raises(HeadraceError, match=r"cold/1\.cold, at byte 32: simulated fault"):
        cold.read(place)
    files.faults.failing = {}
    assert cold.read(place) == run
