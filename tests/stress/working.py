"""Clients that work while something happens to their server: what goes wrong in a thread fails the test."""

from __future__ import annotations

import threading

from support.speaking import SECONDS_MAX, Client


class Worker:
    """A client with a thread of its own, that takes a step after the other until it is ended."""

    def __init__(self, port: int, number: int) -> None:
        self.client = Client.to(port)
        self.key = f"work:{number}"
        self.ids: list[bytes] = []  # of what it has added
        self.enough = False
        self.wrong: BaseException | None = None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def step(self) -> None:
        """Do one thing."""
        raise NotImplementedError

    def end(self) -> None:
        """After the step that it is at; what it died of is raised."""
        self.enough = True
        self.thread.join(SECONDS_MAX)
        assert not self.thread.is_alive()
        self.client.close()
        if self.wrong is not None:
            raise self.wrong

    def _work(self) -> None:
        try:
            while not self.enough:
                self.step()
        except BaseException as wrong:
            self.wrong = wrong
