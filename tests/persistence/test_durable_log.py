"""A log in use reports each failure once, and has writes rejected until it is complete again."""

from __future__ import annotations

import pytest

from headrace.persistence.aof.durable_log import DurableLog
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.data_directory import DiskDirectory


class Interrupt(BaseException):
    """As KeyboardInterrupt."""


class User:
    """Notes what a log reports."""

    def __init__(self, path, policy: str = "always") -> None:
        self.reports: list[str] = []
        self.interrupted = self.waiting = False
        self.log = DurableLog(
            DiskDirectory(str(path)),
            LogFileNames(),
            policy=policy,
            sync_later=lambda file: None,
            has_sync_waiters=lambda: self.waiting,
            on_failure_changed=self.on_failure_changed,
        )
        self.log.open(None, lambda file: None, rdb=False)

    def on_failure_changed(self, failure: str) -> None:
        if self.interrupted:
            self.interrupted = False
            raise Interrupt
        self.reports.append(failure)


@pytest.fixture
def user(tmp_path) -> User:
    return User(tmp_path)


def test_a_failure_is_reported_once_and_its_end_once(user, caplog) -> None:
    user.log.report_failure()
    for failure in ("full", "full", "broken", "", ""):
        user.log.failure = failure
        user.log.report_failure()
    assert user.reports == ["full", "broken", ""]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_writes_that_are_accepted_again_need_a_reason_only_if_they_were_rejected(user, caplog) -> None:
    user.log.accept_writes("the log was turned off")
    assert user.reports == [] and not caplog.records
    user.log.failure = "full"
    user.log.report_failure()
    user.log.accept_writes("the log was turned off")
    assert user.reports == ["full", ""]
    assert caplog.messages[-1] == "the log was turned off"


def test_writes_do_not_stay_rejected_when_the_report_is_interrupted(user) -> None:
    user.log.failure = "full"
    user.log.report_failure()
    user.log.failure = ""
    user.interrupted = True
    with pytest.raises(Interrupt):
        user.log.report_failure()
    user.log.report_failure()
    assert user.reports == ["full", ""]


def test_a_log_without_syncs_is_synced_every_second_while_a_client_waits(tmp_path) -> None:
    user = User(tmp_path, "no")
    policies = []
    for waiting in (False, True, False):
        user.waiting = waiting
        user.log.tick(0)
        policies.append(user.log.policy)
    assert policies == ["no", "everysec", "no"]
    user.waiting = True
    user.log.set_appendfsync("always")
    assert user.log.policy == "always"


def test_a_log_that_was_opened_before_continues(tmp_path) -> None:
    log = User(tmp_path).log
    log.commit([(0, [b"SET", b"a", b"1"])], 0)
    log.close(True)
    manifest = log.manifest
    again = DurableLog(
        DiskDirectory(str(tmp_path)),
        LogFileNames(),
        policy="always",
        sync_later=lambda file: None,
        has_sync_waiters=lambda: False,
        on_failure_changed=lambda failure: None,
    )
    again.open(manifest, lambda file: pytest.fail("a log is there"))
    assert again.size == log.size > 0
