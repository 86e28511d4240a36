"""Memory runs out under load: who wants more is told so, what was acknowledged stays, there is a way out."""

from __future__ import annotations

import time

import pytest

from headrace.errors import CommandError
from stress.working import Worker
from support.speaking import Client
from support.waiting import wait_until

pytestmark = pytest.mark.whole

LIMIT = 4 << 20
WRITERS = 4
VALUE = "v" * 500
OOM = "OOM command not allowed when used memory > 'maxmemory'."


class Writer(Worker):
    """Adds; whether it is refused or not, it goes on."""

    refused = 0

    def step(self) -> None:
        made = self.client.request("XADD", self.key, "*", "v", VALUE)
        if isinstance(made, CommandError):
            assert str(made) == OOM
            self.refused += 1
            time.sleep(0.005)
        else:
            assert isinstance(made, bytes)
            self.ids.append(made)


def used(client: Client) -> int:
    """What the data weigh."""
    return int(client.info("memory")["used_memory"])


def entries(client: Client, key: str) -> list[bytes]:
    """The IDs that a stream has."""
    found = client.request("XRANGE", key, "-", "+")
    assert isinstance(found, list)
    return [entry for entry, _ in found]


def test_writers_run_into_it_and_go_on_when_there_is_room(launch):
    server = launch("--maxmemory", str(LIMIT))
    admin = server.client()
    writers = [Writer(server.port, n) for n in range(WRITERS)]
    wait_until(lambda: all(writer.refused > 10 for writer in writers))
    assert used(admin) < LIMIT * 1.05
    assert str(admin.request("SET", "k", VALUE)) == OOM
    assert admin.ask("XLEN work:0") > 0 and admin.ask("PING") == "PONG"  # what needs none goes on
    assert admin.ask("XGROUP DESTROY work:0 g") == 0
    gone = {writer.key: admin.ask(f"XTRIM {writer.key} MAXLEN = 100") for writer in writers}
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
    assert str(again.request("SET", "k", VALUE)) == OOM  # it starts full, and says so
    assert again.ask("DEL work:0 work:1") == 2
    assert again.request("SET", "k", VALUE) == "OK"


def test_the_oldest_entries_make_room_and_no_stream_goes(launch):
    server = launch("--maxmemory", str(LIMIT), "--maxmemory-policy", "stream-oldest")
    admin = server.client()
    for n in range(WRITERS):
        assert admin.ask(f"XGROUP CREATE work:{n} g $ MKSTREAM") == "OK"
    writers = [Writer(server.port, n) for n in range(WRITERS)]
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
