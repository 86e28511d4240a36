"""Memory runs out under load: who wants more is told so, what was acknowledged stays, there is a way out."""

from __future__ import annotations

import threading
import time

import pytest
from real_server import Client, RealServer

from headrace.resp.replies import ReplyError
from waiting import wait_until

pytestmark = pytest.mark.whole

LIMIT = 4 << 20
WRITERS = 4
VALUE = "v" * 500
OOM = "OOM command not allowed when used memory > 'maxmemory'."


class Writer:
    """Adds until it is told to stop; whether it is refused or not, it goes on."""

    def __init__(self, server: RealServer, number: int) -> None:
        self.client = Client(server.port)
        self.key = f"s:{number}"
        self.ids: list[bytes] = []
        self.refused = 0
        self.enough = False
        self.wrong: BaseException | None = None
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self) -> None:
        try:
            while not self.enough:
                made = self.client("XADD", self.key, "*", "v", VALUE)
                if isinstance(made, ReplyError):
                    assert str(made) == OOM
                    self.refused += 1
                    time.sleep(0.005)
                else:
                    assert isinstance(made, bytes)
                    self.ids.append(made)
        except BaseException as wrong:
            self.wrong = wrong

    def end(self) -> None:
        self.enough = True
        self.thread.join(30)
        self.client.sock.close()
        if self.wrong is not None:
            raise self.wrong


def used(client: Client) -> int:
    """What the data weigh."""
    return int(client.info("memory")["used_memory"])


def entries(client: Client, key: str) -> list[bytes]:
    """The IDs that a stream has."""
    found = client("XRANGE", key, "-", "+")
    assert isinstance(found, list)
    return [entry for entry, _ in found]


def test_writers_run_into_it_and_go_on_when_there_is_room(launch):
    server = launch("--maxmemory", str(LIMIT))
    admin = server.client()
    writers = [Writer(server, n) for n in range(WRITERS)]
    wait_until(lambda: all(writer.refused > 10 for writer in writers))
    assert used(admin) < LIMIT * 1.05
    assert str(admin("SET", "k", VALUE)) == OOM
    assert admin.ask("XLEN s:0") > 0 and admin.ask("PING") == "PONG"  # what needs none goes on
    assert admin.ask("XGROUP DESTROY s:0 g") == 0
    gone = {writer.key: admin(*f"XTRIM {writer.key} MAXLEN = 100".split()) for writer in writers}
    before = {writer.key: len(writer.ids) for writer in writers}
    wait_until(lambda: all(len(writer.ids) > before[writer.key] + 100 for writer in writers))
    wait_until(lambda: all(writer.refused > 20 for writer in writers))
    for writer in writers:
        writer.end()
    held = {writer.key: entries(admin, writer.key) for writer in writers}
    for writer in writers:
        assert held[writer.key] == writer.ids[-len(held[writer.key]) :]
        assert len(held[writer.key]) == len(writer.ids) - gone[writer.key]
    server.kill()
    again = launch("--maxmemory", str(LIMIT)).client()
    assert {key: entries(again, key) for key in held} == held
    assert str(again("SET", "k", VALUE)) == OOM  # it starts full, and says so
    assert again.ask("DEL s:0 s:1") == 2
    assert again("SET", "k", VALUE) == "OK"


def test_the_oldest_entries_make_room_and_no_stream_goes(launch):
    server = launch("--maxmemory", str(LIMIT), "--maxmemory-policy", "stream-oldest")
    admin = server.client()
    for n in range(WRITERS):
        assert admin.ask(f"XGROUP CREATE s:{n} g $ MKSTREAM") == "OK"
    writers = [Writer(server, n) for n in range(WRITERS)]
    most = 0

    def has_turned_over() -> bool:
        nonlocal most
        most = max(most, used(admin))
        return int(admin.info("stats")["evicted_entries"]) > 5_000

    wait_until(has_turned_over)
    for writer in writers:
        writer.end()
    assert most < LIMIT * 1.05
    evicted = int(admin.info("stats")["evicted_entries"])
    held = {writer.key: entries(admin, writer.key) for writer in writers}
    assert sum(writer.refused for writer in writers) == 0
    assert evicted == sum(len(writer.ids) - len(held[writer.key]) for writer in writers)
    for writer in writers:
        assert held[writer.key] == writer.ids[-len(held[writer.key]) :]  # the newest, without a hole
        assert len(admin.ask(f"XINFO GROUPS {writer.key}")) == 1
    server.kill()
    again = launch("--maxmemory", str(LIMIT), "--maxmemory-policy", "stream-oldest").client()
    assert {key: entries(again, key) for key in held} == held
