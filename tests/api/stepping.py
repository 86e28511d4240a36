"""Consumers step by step, without threads and without waiting, on a link that can die at any moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.api.backend import Link, Stop
from headrace.api.consuming.actions import FINISHED, Ask, Idle, Read
from headrace.api.consuming.consumer import Consumer
from headrace.api.consuming.runner import perform
from headrace.api.consuming.worker import Worker
from headrace.api.delivery import Delivery
from headrace.api.group import Group


class Killed(BaseException):
    """The process is no more."""


class MortalLink:
    """A link of a process that is killed at its n-th call: before the call is carried out, or right after."""

    def __init__(self, link: Link, dies_at: int | None = None, after: bool = False) -> None:
        self.link = link
        self.calls = 0
        self.dies_at = dies_at
        self.after = after
        self.dead = False

    @property
    def far(self) -> bool:
        return self.link.far

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

    def execute(self, *words: bytes) -> Any:
        return self._carry_out(lambda: self.link.execute(*words))

    def execute_all(self, requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
        replies: list[Any] = self._carry_out(lambda: self.link.execute_all(requests, atomic))
        return replies

    def wait(self, words: Sequence[bytes], seconds: float | None, stop: Stop | None = None) -> Any:
        return self._carry_out(lambda: self.link.wait(words, seconds, stop))

    def now_ms(self) -> int:
        return self.link.now_ms()

    def pause(self, seconds: float, stop: Stop | None = None) -> bool:
        return self.link.pause(seconds, stop) or self.dead


def on(group: Group[Any], link: Any) -> Group[Any]:
    """The same group, as a process of its own sees it through that link."""
    policy = group.policy
    stream = type(group.stream)(link, group.stream.key)
    other = Group.__new__(type(group))
    other.__dict__.update(group.__dict__ | {"link": link, "stream": stream, "policy": policy, "handlers": []})
    return other


class Stepper:
    """One consumer, of which the test does each step."""

    def __init__(self, consumer: Consumer[Any]) -> None:
        self.worker: Worker = consumer.begin()
        self.link = consumer.group.link
        self.asked: list[Sequence[bytes]] = []
        self.waits: list[float | None] = []

    def next(self) -> Delivery[Any] | None:
        """The next delivery; None when it would wait, or is finished."""
        while True:
            step = self.worker.next()
            if isinstance(step, Delivery):
                return step
            if step is FINISHED:
                return None
            if isinstance(step, Read | Idle):
                self.waits.append(step.seconds)
                if isinstance(step, Read):
                    step.undo()
                return None
            assert isinstance(step, Ask)
            self.perform(step)

    def perform(self, ask: Ask) -> None:
        self.asked += ask.requests
        perform(self.link, self.worker, ask)

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
                self.worker.failed(delivery, error)
            else:
                self.worker.ack(delivery)

    def keep(self) -> None:
        while (ask := self.worker.keep()) is not None:
            self.perform(ask)

    def stop(self) -> None:
        self.worker.stop()
        assert self.next() is None


def numbers(deliveries: Sequence[Delivery[Any]]) -> list[int]:
    return [int(one["n"]) for one in deliveries]
