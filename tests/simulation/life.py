"""One run of a server on a simulated disk, with a record of what it has acknowledged.

A Life keeps the journal of the disk, the states of the keyspace, one for each record or transaction that was
logged, and the positions in the journal at which states were acknowledged:

    states     0 (recovered)   1     2     3           4        5
    commits                    └─ first ───┘           second ──┘
    journal        ─ o ──── o ── write ── sync ── o ── write ── sync ──→
    promised       state 0                  └ state 3            └ state 5, and nothing before it is missing
    possible       state 0       └ 1, 2, 3             └ 4, 5

The states come from a second engine that executes only the effects. At every commit it must have the same
data as the first one: so the log contains everything.
"""

from __future__ import annotations

import contextlib
from random import Random
from typing import cast

from headrace.engine.engine import Engine
from headrace.errors import HeadraceError
from headrace.persistence import rule_records
from headrace.persistence.aof.log import Log
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.aof.pending_rewrite import PendingRewrite
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.data_directory import File
from headrace.persistence.recovery import RecoveryResult
from simulation.batches import Batches
from simulation.disk import Image, SimulatedFile, SimulatedFiles
from simulation.world import (
    NAMES,
    SNAPSHOT,
    GradualBase,
    Item,
    LaterSync,
    Setup,
    Wrong,
    known_ids,
    recovered_on,
    replayer,
    units,
    write_keyspace,
)
from support.command_generator import Command
from support.portrait import Portrait, alive, differences, portrait

TICK_MS = 100
WINDOW_MS = 1000 + 2 * TICK_MS  # what everysec may lose, besides the duration of a slow sync
FAILING = {"write": 0.2, "sync": 0.3, "truncate": 0.2, "rename": 0.3, "create": 0.2, "sync_directory": 0.2}


class Life:
    """One run; see the top of this file. log_class: Log, or a faulty subclass of it."""

    def __init__(
        self, setup: Setup, image: Image, chance: Random, now_ms: int, log_class: type[Log] = Log
    ) -> None:
        self.setup = setup
        self.chance = chance
        self.log_class = log_class
        self.now = now_ms
        self.files = SimulatedFiles(image, chance)
        self.files.mark = now_ms
        grammar = "crashes_with_rules" if setup.rules else "crashes"
        self.batches = Batches(chance, "crashes_with_hot_rules" if setup.hot_rules else grammar)
        self.held = False  # the log has failed: no requests, no replies
        self.syncs: list[LaterSync] = []
        self.rewrite: PendingRewrite | None = None
        self.base: GradualBase | None = None  # of the rewrite; None if its file could not be created
        self.faults_until = 0
        self.ended = False
        self.engine, found = recovered_on(self.files, setup, now_ms)
        self.shadow, _ = recovered_on(SimulatedFiles(image, chance), setup, now_ms)
        self.shadow.keyspace.ignore_expiry = True
        if setup.cold:
            assert self.engine.cold_storage is not None
            self.engine.cold_storage.hot_bytes_limit = 0 if setup.hot_rules else 1
        self.repeat_session, _ = replayer(self.shadow, now_ms)
        self.sessions = [self.engine.create_session(), self.engine.create_session()]
        self.engine.set_effect_recording(True)
        self.states: list[Portrait] = [self.shown(self.shadow)]
        if self.states[0]:
            self.batches.set_known(known_ids(self.states[0]))
        self.given: list[tuple[int, int]] = []  # (position in the journal, state): possible from there on
        self.promised: list[tuple[int, int]] = [
            (0, 0)
        ]  # (position in the journal, state): promised from there on
        self.owed: list[tuple[int, int]] = []  # (time of the acknowledgement, state): not synced yet
        self.offsets: list[tuple[int, int]] = []  # (log.written, state): for WAITAOF
        self.log: Log | None = None
        if setup.appendonly:
            self.start_log(found)

    def new_log(self) -> Log:
        log = self.log_class(
            self.files,
            NAMES,
            policy=self.setup.policy,
            timestamps=self.setup.timestamps,
            disable_gc=self.setup.disable_gc,
            sync_later=self.sync_later,
        )
        if self.engine.cold_storage is not None:
            store = self.engine.cold_storage.store
            assert isinstance(store, ColdStore)
            log.cold_files = store.files
        return log

    def start_log(self, found: RecoveryResult) -> None:
        """Continue the recovered log, or create one; end the run if the disk fails."""
        if self.setup.faults and self.chance.random() < 0.1:
            self.files.faults.failing = dict.fromkeys(FAILING, 0.1)
            self.faults_until = self.now + TICK_MS
        try:
            self.log = self.new_log()
            self.log.start(found.manifest)
            if found.manifest is None:
                rdb = self.setup.rdb_base
                self.log.create(lambda file: self.write(file, log=True, rdb=rdb), rdb)
        except (OSError, HeadraceError):
            if not self.faults_until:
                raise
            self.log = None
            self.ended = True

    def write(self, file: File, *, log: bool, rdb: bool) -> None:
        """Write the keyspace as a base or a snapshot."""
        references = None
        if log and self.setup.cold:
            assert self.log is not None and self.log.rewrite is not None
            references = self.log.rewrite.cold_references
        write_keyspace(
            file, self.engine.keyspace, self.setup, self.now, log=log, rdb=rdb, references=references
        )

    def shown(self, engine: Engine) -> Portrait:
        """Return the portrait of an engine. Only the log keeps the delivery order of equal times."""
        ties = not self.setup.rewrites and self.setup.appendonly
        return portrait(engine.keyspace, times=False, ties=ties, rules=True)

    # ---- the other thread

    def sync_later(self, file: File) -> LaterSync:
        delay = self.chance.randint(0, self.setup.slow_sync_ms) if self.setup.slow_sync_ms else 0
        sync = LaterSync(cast(SimulatedFile, file), self.now + delay)
        self.syncs.append(sync)
        return sync

    def pass_time(self, ms: int) -> None:
        """Advance the clock by ticks; skip most of a long time."""
        ticks = 0
        while ms > 0 and ticks < 40:
            step = min(ms, TICK_MS)
            ms -= step
            ticks += 1
            self.tick(step)
        if ms > 0:
            self.tick(ms)

    def tick(self, ms: int) -> None:
        self.now += ms
        self.files.mark = self.now
        for sync in self.syncs:
            if sync.ends_ms <= self.now:
                sync.end()
        self.syncs = [sync for sync in self.syncs if not sync.ended]
        self.engine.tick(self.now)
        if self.engine.cold_storage is not None:
            self.engine.cold_storage.store.remove_unreferenced()
        if self.log is not None:
            self.log.tick(self.now)
            self.note_synced()
            self.settle_debts()

    def note_synced(self) -> None:
        """Record what WAITAOF would report: it is a promise under any policy."""
        assert self.log is not None
        while self.offsets and self.offsets[0][0] <= self.log.synced:
            self.promised.append((len(self.files.journal), self.offsets.pop(0)[1]))

    def settle_debts(self) -> None:
        """Promise what everysec acknowledged a second ago."""
        assert self.log is not None
        if self.held or self.log.failure or self.setup.policy == "no":
            return
        window = WINDOW_MS + 2 * self.setup.slow_sync_ms
        due = [state for at, state in self.owed if at + window <= self.now]
        if due:
            self.promised.append((len(self.files.journal), max(due)))
            self.owed = [(at, state) for at, state in self.owed if at + window > self.now]

    # ---- one turn of the event loop

    def run(self, turns: int) -> None:
        """Run so many turns."""
        for _ in range(turns):
            if self.ended:
                break
            self.one_turn()

    def one_turn(self) -> None:
        chance = self.chance
        self.pass_time(chance.choice((0, 1, 10, 60, 60, 300, 1100, chance.choice((5000, 120_000)))))
        self.change_faults()
        if self.base is not None:
            self.base.run(chance.choice((0, 1, 3, 10)))
        if self.held:
            self.recover_from_trouble()
            return
        if self.log is None and self.setup.appendonly and chance.random() < 0.4:
            self.switch_on()
            return
        dice = chance.random()
        if dice < 0.72:
            self.converse(self.batches.next(self.now))
        elif dice < 0.84 and self.setup.rewrites and self.log is not None:
            if self.rewrite is None:
                self.begin_rewrite()
            else:
                self.finish_rewrite()
        elif dice < 0.90 and (self.setup.rewrites or not self.setup.appendonly):
            self.save()
        elif dice < 0.93 and self.log is not None:
            self.change_policy(chance.choice(("always", "everysec", "no")))
        elif dice < 0.95 and self.setup.appendonly:
            self.switch_off()
        elif dice < 0.96:
            self.stop()
        else:
            self.converse([])

    def change_faults(self) -> None:
        faults, chance = self.files.faults, self.chance
        if not self.setup.faults:
            return
        if self.faults_until and self.faults_until <= self.now:
            faults.failing, faults.room, faults.short = {}, None, 0.0
            self.faults_until = 0
        elif not self.faults_until and chance.random() < 0.3:
            self.faults_until = self.now + chance.choice((1, 100, 3000))
            what = chance.choice([*FAILING, "room", "short", "all"])
            faults.short = 0.3
            if what == "room":
                faults.room = chance.choice((0, 10, 200))
            elif what == "all":
                faults.failing = dict(FAILING)
            elif what != "short":
                faults.failing = {what: chance.choice((FAILING[what], 1.0))}

    def converse(self, requests: list[Command]) -> None:
        """Run one turn: requests, while another reader may be waiting, then the commit."""
        idle = [session for session in self.sessions if session.waiter is None]
        session = self.chance.choice(idle or self.sessions)
        for request in requests:
            if session.waiter is not None:
                self.engine.unblock(session)
            self.engine.execute(session, request, self.now)
            answer = bytes(session.reply.take())
            if b"internal error" in answer:
                raise Wrong(f"{request} → {answer!r}")
        self.engine.woken_sessions.clear()
        self.commit()

    def commit(self) -> None:
        """Commit the effects so far to the log."""
        items = self.engine.effects.take()
        place = len(self.files.journal)
        for unit in units(items):
            self.repeat(unit)
            self.states.append(self.shown(self.shadow))
        self.compare_engines(items)
        self.batches.set_known(known_ids(self.states[-1]))
        if self.log is not None:
            self.given.append((place, len(self.states) - 1))
            durable = self.log.commit(items, self.now)
            if self.log.written:
                self.offsets.append((self.log.written, len(self.states) - 1))
            self.note_synced()
            self.acknowledge(durable)

    def acknowledge(self, durable: bool) -> None:
        """Record the result of a commit: whether everything is as durable as the policy promises."""
        self.held = not durable
        if durable and self.setup.policy == "always":
            self.promised.append((len(self.files.journal), len(self.states) - 1))
            self.owed = []
        elif durable and self.setup.policy == "everysec":
            self.owed.append((self.now, len(self.states) - 1))

    def repeat(self, unit: list[Item]) -> None:
        for database, words in unit:
            if database != self.repeat_session.database:
                self.shadow.execute(self.repeat_session, [b"SELECT", b"%d" % database], self.now)
            words = rule_records.recorded_command(words) or words
            self.shadow.execute(self.repeat_session, words, self.now)
            self.repeat_session.reply.take()

    def compare_engines(self, items: list[Item]) -> None:
        seen, repeated = alive(self.shown(self.engine), self.now), alive(self.states[-1], self.now)
        if seen != repeated:
            lines = "\n".join(differences(seen, repeated)[:10])
            raise Wrong(f"the effects do not say all there was to say: {items}\n{lines}")

    # ---- rewrites and settings of the log

    def begin_rewrite(self) -> None:
        """Begin a rewrite. The base is written in steps, between commits."""
        assert self.log is not None
        self.commit()
        try:
            self.rewrite = self.log.begin_rewrite(self.setup.rdb_base)
        except HeadraceError:
            return
        with contextlib.suppress(OSError):
            file = self.files.create(self.rewrite.temporary_path)
            self.base = GradualBase(file, self.engine.keyspace, self.setup, self.now, self.rewrite)

    def finish_rewrite(self) -> None:
        """Write what is left of the base, and finish the rewrite."""
        assert self.log is not None
        rewrite, self.rewrite = self.rewrite, None
        assert rewrite is not None
        self.log.finish_rewrite(rewrite, self.finish_base())
        self.note_synced()
        self.acknowledge(self.log.commit([], self.now))

    def finish_base(self) -> bool:
        """Finish the base, if there is one; return whether it is complete."""
        base, self.base = self.base, None
        return base is not None and base.finish()

    def switch_off(self) -> None:
        """Run CONFIG SET appendonly no. The next start still reads the log as it is now."""
        if self.log is not None:
            self.close()
            self.log = self.rewrite = None
            self.held = False
            self.owed, self.offsets = [], []

    def switch_on(self) -> None:
        """Run CONFIG SET appendonly yes: nothing is promised before a rewrite has succeeded."""
        self.commit()
        try:
            self.log = self.new_log()
            self.log.start(None)
            self.log.manifest = Manifest.load(self.files, NAMES) or self.log.manifest
        except OSError:
            self.log = None
            return
        self.held = True

    def close(self) -> None:
        """Close the log. If it reports success everything is promised, whatever the policy."""
        assert self.log is not None
        self.commit()
        self.finish_base()
        if self.log.close(True):
            self.promised.append((len(self.files.journal), len(self.states) - 1))

    def change_policy(self, policy: str) -> None:
        assert self.log is not None
        self.commit()
        if not self.held:
            self.log.set_policy(policy)
            self.setup.policy = policy
            self.owed = [] if policy == "no" else self.owed

    def recover_from_trouble(self) -> None:
        """Do what the server does while replies are held back."""
        assert self.log is not None
        if self.log.needs_rewrite:
            if self.rewrite is not None:
                self.finish_rewrite()
            if self.log.needs_rewrite:
                self.begin_rewrite()
                if self.rewrite is not None:
                    self.finish_rewrite()
        self.commit()

    def save(self) -> None:
        """Run SAVE. Without a log, its data are promised."""
        self.commit()
        if not self.setup.appendonly:
            self.given.append((len(self.files.journal), len(self.states) - 1))
        temporary = f"temp-{SNAPSHOT}"
        try:
            with contextlib.closing(self.files.create(temporary)) as file:
                self.write(file, log=False, rdb=True)
                file.sync()
            self.files.rename(temporary, SNAPSHOT)
            self.files.sync_directory("")
        except OSError:
            return
        if not self.setup.appendonly:
            self.promised.append((len(self.files.journal), len(self.states) - 1))

    def stop(self) -> None:
        """Stop cleanly."""
        self.ended = True
        if self.log is not None:
            self.close()

    # ---- crashes

    def range_at(self, boundary: int) -> tuple[int, int]:
        """Return the first and the last state that may be recovered after a crash at a boundary."""
        promised = max(state for place, state in self.promised if place <= boundary)
        possible = max((state for place, state in self.given if place < boundary), default=0)
        return promised, max(promised, possible)
