"""Consumers step by step, without threads and without waiting, on a backend that can die at any moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.api.backend import Backend, Stop
from headrace.api.consuming.action_runner import send_requests
from headrace.api.consuming.actions import FINISHED, BlockingRead, Idle, SendRequests
from headrace.api.consuming.consumer import Consumer
from headrace.api.consuming.worker import Worker
from headrace.api.delivery import Delivery
from headrace.api.group import Group


class Killed(BaseException):
    """The process is no more."""


class MortalBackend:
    """The backend of a process killed at its n-th call: before the call is executed, or right after it."""

    def __init__(self, backend: Backend, dies_at: int | None = None, after: bool = False) -> None:
        self.backend = backend
        self.calls = 0
        self.dies_at = dies_at
        self.after = after
        self.dead = False

    @property
    def far(self) -> bool:
        return self.backend.is_remote

    def kill(self) -> None:
        self.dead = True

    def _carry_out(self, call: Callable[[], Any]) -> Any:
        if self.dead:
            raise Killed
        self.calls += 1
        if self.calls == self.dies_at:
            self.dead = True
            if self.after:
                call()
            raise Killed
        reply = call()
        if self.dead:
            raise Killed
        return reply

    def request(self, *words: bytes) -> Any:
        return self._carry_out(lambda: self.backend.request(*words))

    def request_all(self, requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
        replies: list[Any] = self._carry_out(lambda: self.backend.request_all(requests, atomic))
        return replies

    def execute_blocking_read(
        self, words: Sequence[bytes], seconds: float | None, stop: Stop | None = None
    ) -> Any:
        return self._carry_out(lambda: self.backend.execute_blocking_read(words, seconds, stop))

    def now_ms(self) -> int:
        return self.backend.now_ms()

    def sleep(self, seconds: float, stop: Stop | None = None) -> bool:
        return self.backend.sleep(seconds, stop) or self.dead


def on(group: Group[Any], backend: Any) -> Group[Any]:
    """The same group, as a process of its own sees it through that backend."""
    policy = group.policy
    stream = type(group.stream)(backend, group.stream.key)
    other = Group.__new__(type(group))
    other.__dict__.update(
        group.__dict__ | {"backend": backend, "stream": stream, "policy": policy, "handlers": []}
    )
    return other


class Stepper:
    """One consumer, of which the test does each step."""

    def __init__(self, consumer: Consumer[Any]) -> None:
        self.worker: Worker = consumer.create_worker()
        self.backend = consumer.group.backend
        self.asked: list[Sequence[bytes]] = []
        self.waits: list[float | None] = []

    def next(self) -> Delivery[Any] | None:
        """The next delivery; None when it would wait, or is finished."""
        while True:
            step = self.worker.next_action()
            if isinstance(step, Delivery):
                return step
            if step is FINISHED:
                return None
            if isinstance(step, BlockingRead | Idle):
                self.waits.append(step.seconds)
                if isinstance(step, BlockingRead):
                    step.undo()
                return None
            assert isinstance(step, SendRequests)
            self.perform(step)

    def perform(self, ask: SendRequests) -> None:
        self.asked += ask.requests
        send_requests(self.backend, self.worker, ask)

    def all(self) -> list[Delivery[Any]]:
        """What it gets without settling any of it."""
        found = []
        while (delivery := self.next()) is not None:
            found.append(delivery)
        return found

    def handle_all(self, function: Callable[[Delivery[Any]], Any]) -> None:
        """Handle until it would wait."""
        while (delivery := self.next()) is not None:
            try:
                function(delivery)
            except Exception as error:
                self.worker.record_failure(delivery, error)
            else:
                self.worker.ack(delivery)

    def keep(self) -> None:
        while (ask := self.worker.next_lease_renewal()) is not None:
            self.perform(ask)

    def stop(self) -> None:
        self.worker.stop()
        assert self.next() is None


def numbers(deliveries: Sequence[Delivery[Any]]) -> list[int]:
    return [int(one["n"]) for one in deliveries]
