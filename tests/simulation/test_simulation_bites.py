"""The simulation detects faults: with one broken line in the storage it fails soon."""

import pytest

from headrace.persistence import recovery
from headrace.persistence.aof.log import Log
from headrace.persistence.aof.manifest import Manifest, write_all
from simulation.disk import SimulatedFile, SimulatedFiles
from simulation.life import Setup, Wrong
from simulation.simulation import History

PATIENCE = 40  # histories


def first_failure(setup, log_class=Log):
    """What the first history says in which something is wrong."""
    for seed in range(PATIENCE):
        try:
            History(seed, setup, log_class).run()
        except Wrong as wrong:
            return str(wrong)
    return ""


class HastyLog(Log):
    """Says that it has synced."""

    def _sync(self):
        self.synced = self.written - self._recorder.size()
        return True


class StubbornLog(Log):
    """Goes on with a file that could not be synced."""

    def _give_up(self, file, error):
        self._file = file
        self.failure = str(error)


class HalfHeartedLog(Log):
    """Leaves in the file what a write that failed has left there."""

    def _append(self, file):
        with self._recorder.view() as view:
            write_all(file, view)
        self._recorder.clear()
        self._file_size = file.size()


class LeapingLog(Log):
    """Opens the next file before the last one is synced."""

    def begin_rewrite(self, rdb=True):
        flush, self._flush = self._flush, lambda sync: Log._flush(self, False)
        try:
            return super().begin_rewrite(rdb)
        finally:
            self._flush = flush


class TidyLog(Log):
    """Removes the files of the past before the manifest that no longer names them is durable."""

    def _replace_manifest(self, manifest):
        needed = {line.file for line in [manifest.base, *manifest.incrs] if line}
        for line in [self.manifest.base, *self.manifest.incrs]:
            if line and line.file not in needed:
                self.files.remove(self.names.path(line.file))
        super()._replace_manifest(manifest)


@pytest.mark.parametrize(
    ("log_class", "setup"),
    [
        (HastyLog, Setup(policy="always")),
        (StubbornLog, Setup(policy="always", faults=True)),
        (HalfHeartedLog, Setup(policy="always", faults=True, rewrites=False)),
        (LeapingLog, Setup(policy="everysec")),
        (TidyLog, Setup(policy="everysec")),
    ],
)
def test_a_log_that_does_not_sync_is_detected(log_class, setup):
    assert first_failure(setup, log_class)


def test_unsynced_directories_are_detected(monkeypatch):
    monkeypatch.setattr(SimulatedFiles, "sync_directory", lambda self, name: None)
    assert first_failure(Setup(policy="always"))


def test_a_manifest_renamed_before_its_sync_is_detected(monkeypatch):
    sync = SimulatedFile.sync
    monkeypatch.setattr(SimulatedFile, "sync", lambda self: "manifest" in self.name or sync(self))
    assert first_failure(Setup(policy="always"))


@pytest.mark.parametrize("choose", [lambda incrs: incrs[::-1], lambda incrs: incrs[:1]])
def test_a_recovery_that_ignores_the_manifest_is_detected(monkeypatch, choose):
    read = recovery.Recovery.read_log

    def read_others(self, names, manifest, *more):
        return read(self, names, Manifest(manifest.base, manifest.history, choose(manifest.incrs)), *more)

    monkeypatch.setattr(recovery.Recovery, "read_log", read_others)
    assert first_failure(Setup(policy="always"))


def test_a_recovery_that_keeps_half_a_transaction_is_detected(monkeypatch):
    """As Redis 7.0 and 8.0 do: nothing is wrong until the second restart."""
    monkeypatch.setattr(recovery.Recovery, "_cut", lambda self, name, size: None)
    assert first_failure(Setup(policy="always"))


def test_an_unchanged_log_passes_these_checks():
    for policy in ("always", "everysec"):
        setup = Setup(policy=policy, faults=True)
        for seed in range(PATIENCE // 8):
            History(seed, setup).run()
