"""The environment of a run: its configuration, engines, and what SAVE and rewrites write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from random import Random

from headrace.commands.session import Session
from headrace.engine.engine import Engine
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence import rule_records
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.manifest import write_all
from headrace.persistence.aof.pending_rewrite import PendingRewrite
from headrace.persistence.aof.rewrite import command_steps, write_commands
from headrace.persistence.cold.cold_files import ColdFile, ColdFiles
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.data_directory import File
from headrace.persistence.rdb import versions
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.versions import RdbVersion
from headrace.persistence.rdb.writer import rdb_steps, write_rdb
from headrace.persistence.recovery import RecoveryResult, recover
from simulation.disk import SimulatedFile, SimulatedFiles
from support.portrait import Portrait

NAMES = LogFileNames()
SNAPSHOT = "dump.rdb"
ALL_STEPS = 1 << 30
COLD_FILE_BYTES = 600
BIRTH_MS = 1_700_000_000_000

Item = tuple[int, list[bytes]]


class Wrong(AssertionError):
    """Data were lost, appeared, or could not be read."""


@dataclass
class Setup:
    """The configuration of the server of a history."""

    policy: str = "always"
    appendonly: bool = True
    rdb_base: bool = True
    version: str = "compatible"
    timestamps: bool = False
    disable_gc: bool = False
    faults: bool = False
    rewrites: bool = True
    slow_sync_ms: int = 0  # everysec: the longest duration of a sync in the other thread
    node_entries: int = 4
    node_bytes: int = 4096
    rules: bool = False  # clients set rules of streams and groups
    cold: int = 0  # bytes of a cold run; the oldest nodes of streams are in files; 0: all are in memory
    hot_rules: bool = (
        False  # with cold: clients set HOT-BYTES and HOT-AGE, instead of a limit for all streams
    )

    @classmethod
    def by_chance(cls, chance: Random) -> Setup:
        """Return a random configuration."""
        return cls(
            policy=chance.choice(("always", "always", "everysec", "everysec", "no")),
            appendonly=chance.random() < 0.9,
            rdb_base=chance.random() < 0.6,
            version=chance.choice(("compatible", *(version.name for version in versions.VERSIONS))),
            timestamps=chance.random() < 0.2,
            disable_gc=chance.random() < 0.1,
            faults=chance.random() < 0.4,
            rewrites=chance.random() < 0.6,
            slow_sync_ms=chance.choice((0, 0, 0, 700, 2500)),
            node_entries=chance.choice((1, 4, 4, 100)),
            node_bytes=chance.choice((1, 60, 4096)),
        )


class LaterSync:
    """A sync in another thread, which ends after some time."""

    def __init__(self, file: SimulatedFile, ends_ms: int) -> None:
        self.file = file
        self.covers = file.inode.operations
        self.ends_ms = ends_ms
        self.ended = False
        self.error: OSError | None = None

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            try:
                self.file.sync_up_to(self.covers)
            except OSError as error:
                self.error = error

    def done(self) -> bool:
        return self.ended

    def exception(self, timeout: float | None = None) -> OSError | None:
        self.end()
        return self.error

    def result(self, timeout: float | None = None) -> None:
        self.end()
        if self.error is not None:
            raise self.error


def replayer(engine: Engine, now_ms: int) -> tuple[Session, Callable[[list[bytes]], bytes | None]]:
    """Return a session for replay, and a function that executes a command in it."""
    session = engine.create_session()
    session.replayed = True

    def execute(words: list[bytes]) -> bytes | None:
        words = rule_records.recorded_command(words) or words
        engine.execute(session, words, now_ms)
        answer = bytes(session.reply.take())
        return answer[1:] if answer.startswith(b"-") else None

    return session, execute


def open_cold_storage(engine: Engine, files: SimulatedFiles, run_bytes: int, limit: int) -> None:
    """Let an engine use the cold files of a disk: to load what is there, or (limit) to write more."""
    cold = engine.open_cold_storage(
        ColdStore(ColdFiles(files, NAMES.cold_directory, file_bytes_max=COLD_FILE_BYTES)), limit
    )
    cold.run_bytes = run_bytes
    cold.cache.limit = run_bytes
    engine.rule_registry.open_cold_storage = lambda: None  # HOT-BYTES and HOT-AGE are accepted


def new_engine(setup: Setup) -> Engine:
    """Return an empty engine."""
    engine = Engine()
    engine.keyspace.settings.stream_node_max_entries = setup.node_entries
    engine.keyspace.settings.stream_node_max_bytes = setup.node_bytes
    return engine


def recovered_on(
    files: SimulatedFiles, setup: Setup, now_ms: int, engine: Engine | None = None
) -> tuple[Engine, RecoveryResult]:
    """Recover the disk into an engine, a new one or this one emptied. Raises what recover() does."""
    if engine is None:
        engine = new_engine(setup)
    engine.keyspace.flush_all()
    if setup.cold:
        open_cold_storage(engine, files, setup.cold, 0)
    session, execute = replayer(engine, now_ms)
    found = recover(
        files,
        NAMES,
        engine.keyspace,
        execute,
        appendonly=setup.appendonly,
        dbfilename=SNAPSHOT,
        truncated_ok=True,
        now_ms=now_ms,
    )
    engine.close(session)
    return engine, found


def write_keyspace(
    file: File,
    keyspace: Keyspace,
    setup: Setup,
    now_ms: int,
    *,
    log: bool,
    rdb: bool,
    references: set[ColdFile] | None = None,
) -> None:
    """Write a keyspace as the base of a log or as a snapshot."""
    sink = partial(write_all, file)
    if rdb:
        version = versions.by_name(setup.version)
        write_rdb(keyspace, sink, version=version, now_ms=now_ms, aof_base=log, references=references)
    else:
        write_commands(keyspace, sink, now_ms, setup.timestamps)


class GradualBase:
    """The base of a log, of the present data, that is written in steps while requests are executed."""

    def __init__(
        self, file: File, keyspace: Keyspace, setup: Setup, now_ms: int, rewrite: PendingRewrite
    ) -> None:
        self.file = file
        self.references = rewrite.cold_references if setup.cold else None
        self.keyspace = keyspace
        self.failed = False
        self.image = keyspace.freeze(now_ms, walk_step_bytes=1)
        sink = partial(write_all, file)
        if rewrite.rdb:
            self.steps = self._rdb_steps(RdbOutput(sink), versions.by_name(setup.version))
        else:
            self.steps = command_steps(self.image, sink, setup.timestamps)

    def _rdb_steps(self, out: RdbOutput, version: RdbVersion) -> Iterator[int]:
        for step in rdb_steps(self.image, out, version=version, aof_base=True, references=self.references):
            out.flush()  # not only at the end, which is what these few data come to
            yield step
        out.write_trailer(True)

    def run(self, steps: int) -> None:
        """Write so many steps, unless the disk has failed."""
        if not self.failed:
            try:
                for _ in islice(self.steps, steps):
                    pass
            except OSError:
                self.failed = True

    def finish(self) -> bool:
        """Write the rest and sync it; return whether all of that has worked."""
        self.run(ALL_STEPS)
        self.keyspace.release_image(self.image)
        with contextlib.closing(self.file):
            if not self.failed:
                try:
                    self.file.sync()
                except OSError:
                    self.failed = True
        return not self.failed


def known_ids(shown: Portrait) -> list[bytes]:
    """Return the IDs of all entries and pending entries."""
    found: set[tuple[int, int]] = set()
    for value in shown.values():
        if value["type"] == "stream":
            found.update(entry for entry, _ in value["entries"])
            found.update(entry for group in value["groups"].values() for entry, *_ in group["pending"])
    return [b"%d-%d" % one for one in sorted(found)]


def units(items: list[Item]) -> list[list[Item]]:
    """Group records: those between MULTI and EXEC are one unit."""
    found: list[list[Item]] = []
    inside = False
    for item in items:
        if inside:
            found[-1].append(item)
        else:
            found.append([item])
        inside = item[1] != [b"EXEC"] and (inside or item[1] == [b"MULTI"])
    return found
