"""A history: a run, crashes at every boundary of its journal, and restarts from what is left.

    life 1   ─ o ─ o ─ o ─ o ─ o ─ o ─        each boundary: some images, each recovered and compared
                       └ life 2  ─ o ─ o ─    begins with one of these images; the same checks
                                   └ life 3  ─ o ─ o ─

The recovery of an image also crashes at every boundary, and must then give the same result. Everything is
determined by the seed.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from headrace.errors import HeadraceError
from headrace.persistence.aof.log import Log
from simulation.disk import Image, Op, SimulatedFiles, boundaries
from simulation.life import Life
from simulation.world import BIRTH_MS, NAMES, Setup, Wrong, new_engine, recovered_on
from support.portrait import Portrait, alive, differences

TURNS = (16, 8, 5)  # of the first life, and of the following ones
HEIRS = (2, 1, 0)  # how many images of a life begin another one
Key = tuple[tuple[str, bytes], ...]


class History:
    """All runs of one seed. run() raises Wrong with a description of the failure."""

    def __init__(self, seed: int, setup: Setup | None = None, log_class: type[Log] = Log) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.setup = setup or Setup.by_chance(self.chance)
        self.log_class = log_class
        self.images = 0
        self.cold_runs = 0  # stored
        self.rewritten_runs = 0
        self.bases_with_cold_runs = 0  # in images
        self.boundaries = 0

    def run(self) -> None:
        """Run the history with all its crashes."""
        try:
            self.live({}, BIRTH_MS, replace(self.setup), 0)
        except Wrong as wrong:
            raise Wrong(
                f"{wrong}\n\n{self.setup}\nto see it again: make simulate SEED={self.seed} N=1"
            ) from wrong.__cause__

    def live(self, image: Image, now_ms: int, setup: Setup, depth: int) -> None:
        """Run one life, its crashes, and the lives that begin with their images."""
        life = Life(setup, image, self.chance, now_ms, self.log_class)
        life.run(TURNS[depth])
        if self.chance.random() < 0.3:
            life.stop()
        images = Crashes(life, self.chance, f"life {depth + 1}").look()
        self.images += len(images)
        if life.engine.cold_storage is not None:
            self.cold_runs += life.engine.cold_storage.runs_stored
            self.rewritten_runs += life.engine.cold_storage.runs_rewritten
        self.bases_with_cold_runs += sum(
            b" type c\n" in image.get(NAMES.manifest, b"") for image, _ in images
        )
        self.boundaries += len(life.files.journal) + 1
        for image, now_ms in self.heirs(images, HEIRS[depth]):
            heir = replace(setup)
            if not heir.appendonly and self.chance.random() < 0.5:
                heir.appendonly = True
            self.live(image, now_ms + self.chance.choice((0, 1, 1000)), heir, depth + 1)

    def heirs(self, images: list[tuple[Image, int]], n: int) -> list[tuple[Image, int]]:
        return self.chance.sample(images, min(n, len(images)))


class Crashes:
    """All crashes of one life."""

    def __init__(self, life: Life, chance: Random, title: str) -> None:
        self.life = life
        self.chance = chance
        self.title = title
        self.known: dict[Key, Portrait] = {}  # the recovered state of each image
        self.first: dict[Key, tuple[Image, int]] = {}  # and the time of the crash
        self.engine = new_engine(life.setup)  # for recoveries: creating one takes longer than filling it

    def look(self) -> list[tuple[Image, int]]:
        """Check all crashes; return the images."""
        journal = self.life.files.journal
        promised = 0
        for boundary, platter in boundaries(self.life.files):
            now = journal[max(0, boundary - 1)].mark if journal else self.life.now
            low, high = self.life.range_at(boundary)
            for mode in self.modes(journal[boundary - 1] if boundary else None, low > promised):
                self.check(boundary, mode, platter.image(self.chance, mode), now, low, high)
            promised = low
        return list(self.first.values())

    def modes(self, op: Op | None, more_promised: bool) -> list[str]:
        """Return the modes of images to check after an operation. `forgotten` changes only after syncs."""
        modes = ["kept"]
        if op is not None and (more_promised or "sync" in op.what):
            modes.append("forgotten")
        if op is not None and op.what in ("write", "truncate"):
            modes.append("torn")
        if op is not None and self.chance.random() < 0.3:
            modes.append("mixed")
        return modes

    def check(self, boundary: int, mode: str, image: Image, now: int, low: int, high: int) -> None:
        """Check that the image is recovered to a promised or possible state of the boundary."""
        key: Key = tuple(image.items())
        if key not in self.known:
            self.first[key] = (image, now)
            self.known[key] = self.recover(boundary, mode, image, now)
        seen = alive(self.known[key], now)
        for state in range(high, low - 1, -1):
            if alive(self.life.states[state], now) == seen:
                return
        raise Wrong(self.story(boundary, mode, image, self.compared(seen, low, high, now)))

    def recover(self, boundary: int, mode: str, image: Image, now: int) -> Portrait:
        """Recover an image; check that an interrupted and repeated recovery gives the same state."""
        files = SimulatedFiles(image, self.chance)
        files.mark = now
        seen = self.recovered(files, boundary, mode, image, now)
        for at, platter in boundaries(files) if files.journal else ():
            mode = f"{mode}, recovery crashed at boundary {at}"
            again = platter.image(self.chance, "mixed")
            if self.recovered(SimulatedFiles(again, self.chance), boundary, mode, again, now) != seen:
                raise Wrong(self.story(boundary, mode, again, "it came to something else"))
        return seen

    def recovered(self, files: SimulatedFiles, boundary: int, mode: str, image: Image, now: int) -> Portrait:
        try:
            engine, _ = recovered_on(files, self.life.setup, now, self.engine)
        except HeadraceError as error:
            raise Wrong(self.story(boundary, mode, image, f"refused: {error}")) from error
        return self.life.shown(engine)

    # ---- description of a failure

    def compared(self, seen: Portrait, low: int, high: int, now: int) -> str:
        """Compare the recovered state with the expected ones."""
        states = self.life.states
        others = [i for i, state in enumerate(states) if alive(state, now) == seen]
        lines = [f"states {low} to {high} of {len(states)} were right; this is {others or 'none of all'}"]
        for state in sorted({low, high}):
            lines.append(f"recovered against state {state}:")
            lines += ["    " + line[:300] for line in differences(seen, alive(states[state], now))[:8]]
        return "\n".join(lines)

    def story(self, boundary: int, mode: str, image: Image, what: str) -> str:
        """Describe a failure."""
        life = self.life
        journal = [
            f"    {i + 1:4} {'→' if i + 1 == boundary else ' '} {op.mark - BIRTH_MS:8} ms  {op}"
            for i, op in enumerate(life.files.journal[: boundary + 3])
        ]
        disk = [f"    {name}: {len(data)} bytes, …{data[-60:]!r}" for name, data in image.items()]
        manifest = image.get(NAMES.manifest, b"").decode()
        promises = [
            f"    from {place} on, state {state}" for place, state in life.promised if place <= boundary
        ]
        parts = [
            f"{self.title}, boundary {boundary}, {mode}: {what}",
            "journal (the crash is behind the arrow):",
            *journal[-40:],
            "promised:",
            *promises[-4:],
            "disk:",
            *disk,
            "    " + manifest.replace("\n", "\n    "),
        ]
        return "\n".join(parts)
