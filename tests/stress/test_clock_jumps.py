"""Somebody sets the clock of a running server: IDs never go back, and no wait lasts longer for it.

The clock is that of one process, by a library put before the C library; the machine's stays as it is.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stress.real_server import RealServer
from support.speaking import Client
from support.waiting import wait_until

pytestmark = pytest.mark.whole

HOUR = 3600_000


class ManualClock:
    """A server, and the clock that it goes by."""

    def __init__(self, launch, shim, path: Path) -> None:
        self.file = path / "clock"
        self.ahead(0)
        self.options = {**shim("set_clock"), "SET_CLOCK_FILE": str(self.file)}
        self.launch = launch
        self.server = self.start()
        self.client: Client = self.server.client()

    def start(self, *arguments: str) -> RealServer:
        return self.launch("--loglevel", "verbose", *arguments, **self.options)

    def ahead(self, ms: int) -> None:
        """Set it: so far ahead of the real time."""
        with self.file.open("r+b" if self.file.exists() else "wb") as file:
            file.write(ms.to_bytes(8, "little", signed=True))

    def now(self) -> int:
        """What the server thinks it is, in milliseconds."""
        seconds, micros = self.client.ask("TIME")  # type: ignore[misc]
        return int(seconds) * 1000 + int(micros) // 1000

    def add(self) -> tuple[int, int]:
        """The ID of a new entry."""
        made = self.client.ask("XADD s * n 1")
        assert isinstance(made, bytes), made
        ms, _, seq = made.partition(b"-")
        return int(ms), int(seq)


@pytest.fixture
def world(launch, shim, tmp_path: Path) -> ManualClock:
    return ManualClock(launch, shim, tmp_path)


def test_ids_never_go_back(world):
    before = world.now()
    ids = [world.add()]
    for ahead in (HOUR, 0, -24 * HOUR, 7, 300 * 24 * HOUR, -1):
        world.ahead(ahead)
        assert abs(world.now() - before - ahead) < HOUR // 2
        ids += [world.add() for _ in range(20)]
    assert ids == sorted(set(ids))
    assert ids[-1][0] - before > 299 * 24 * HOUR  # the clock is back: the IDs stay where they came to
    world.server.kill()
    world.server = world.start()
    world.client = world.server.client()
    ids.append(world.add())
    assert ids == sorted(set(ids))
    assert world.client.ask("XLEN s") == len(ids)


def test_a_wait_lasts_no_longer_when_the_clock_is_set_back(world):
    """One that nothing else wakes: the server sleeps until then."""
    waiting, pausing = world.server.client(), world.server.client()
    begun = time.monotonic()
    waiting.send(b"XREAD BLOCK 1500 STREAMS none $\r\n")
    wait_until(lambda: world.client.info("clients")["blocked_clients"] == "1")
    assert world.client.ask("CLIENT PAUSE 1500 WRITE") == "OK"
    pausing.send(b"SET k v\r\n")
    world.ahead(-HOUR)
    assert waiting.reply() is None
    assert pausing.reply() == "OK"
    assert time.monotonic() - begun < 30  # an hour, it would be
    assert "the clock was set by -3600.0" in "".join(world.server.log())


def test_a_wait_and_a_client_live_through_a_clock_set_forward(world):
    waiting, idle = world.server.client(), world.server.client()
    assert idle.ask("PING") == "PONG"
    assert world.client.ask("CONFIG SET timeout 600") == "OK"
    waiting.send(b"XREAD BLOCK 0 STREAMS s $\r\n")
    wait_until(lambda: world.client.info("clients")["blocked_clients"] == "1")
    world.ahead(HOUR)
    wait_until(
        lambda: world.client.ask("PING") and "the clock was set by +3600.0" in "".join(world.server.log())
    )
    assert idle.ask("PING") == "PONG"  # it has not been idle for an hour
    made = world.add()
    assert waiting.reply()[0][1][0][0] == b"%d-%d" % made


def test_a_wait_ends_no_sooner_when_the_clock_is_set_forward(world):
    """Neither one that nothing wakes nor a pause; what they wait for comes while they wait."""
    waiting, grouped, pausing = world.server.client(), world.server.client(), world.server.client()
    assert world.client.ask("XGROUP CREATE s g $ MKSTREAM") == "OK"
    waiting.send(b"XREAD BLOCK 600000 STREAMS s $\r\n")
    grouped.send(b"XREADGROUP GROUP g c BLOCK 600000 STREAMS s >\r\n")
    wait_until(lambda: world.client.info("clients")["blocked_clients"] == "2")
    assert world.client.ask("CLIENT PAUSE 600000 WRITE") == "OK"
    pausing.send(b"SET k v\r\n")
    assert pausing.is_silent()
    world.ahead(HOUR)
    wait_until(lambda: world.client.ask("PING") and "set by +3600.0" in "".join(world.server.log()))
    assert waiting.is_silent() and pausing.is_silent()
    assert world.client.info("clients")["blocked_clients"] == "2"
    assert world.client.ask("CLIENT UNPAUSE") == "OK"
    assert pausing.reply() == "OK"
    made = world.add()
    assert waiting.reply()[0][1][0][0] == grouped.reply()[0][1][0][0] == b"%d-%d" % made


def test_a_clock_before_1970_makes_small_ids_and_waits_end(world):
    made = [world.add()]
    world.ahead(-100 * 365 * 24 * HOUR)
    made += [world.add() for _ in range(3)]
    fresh = world.client.ask("XADD new * n 1")
    assert int(fresh.partition(b"-")[0]) < 10 * 365 * 24 * HOUR  # time goes on from a moment in 1970
    assert made == sorted(set(made)) and made[-1][0] == made[0][0]
    assert world.client.ask("XREAD BLOCK 50 STREAMS new $") is None
    assert world.client.ask("SET k v PX 50") == "OK"
    wait_until(lambda: world.client.ask("GET k") is None)
    assert world.client.ask("XGROUP CREATE s g 0") == "OK"
    world.client.ask("XREADGROUP GROUP g ann STREAMS s >")
    assert all(entry[2] >= 0 for entry in world.client.ask("XPENDING s g - + 10"))
    world.ahead(0)
    assert world.add() > made[-1]


def test_what_expires_does_so_by_the_clock(world):
    assert world.client.ask("SET k v EX 600") == "OK"
    assert world.client.ask("SET keep v EX 86400") == "OK"
    world.ahead(-HOUR)
    assert HOUR // 1000 < world.client.ask("TTL k") <= HOUR // 1000 + 600
    world.ahead(HOUR)
    assert world.client.ask("GET k") is None
    wait_until(lambda: world.client.ask("DBSIZE") == 1)
    world.ahead(0)
    assert world.client.ask("GET k") is None  # gone is gone
    world.server.kill()
    world.client = world.start().client()
    assert world.client.ask("EXISTS k keep") == 1


def test_idle_times_are_never_below_zero_and_claims_go_on(world):
    ids = [world.add() for _ in range(3)]
    assert world.client.ask("XGROUP CREATE s g 0") == "OK"
    world.client.ask("XREADGROUP GROUP g ann STREAMS s >")
    world.ahead(-HOUR)
    pending = world.client.ask("XPENDING s g - + 10")
    assert [entry[2] >= 0 for entry in pending] == [True] * 3
    assert world.client.ask("XAUTOCLAIM s g bob 60000 0")[1] == []  # nobody has held them for a minute
    assert len(world.client.ask("XAUTOCLAIM s g bob 0 0")[1]) == 3
    world.ahead(HOUR)
    assert len(world.client.ask("XAUTOCLAIM s g cid 60000 0")[1]) == 3
    consumers = world.client.ask("XINFO CONSUMERS s g")
    assert all(int(field) >= -1 for one in consumers for field in one[5::2])
    assert world.client.request("XACK", "s", "g", *(f"{ms}-{seq}" for ms, seq in ids)) == 3


def test_the_log_is_synced_and_saved_whatever_the_clock_says(world):
    for ahead in (HOUR, -HOUR, 0):
        world.ahead(ahead)
        world.add()
        wait_until(lambda: world.client.info("persistence")["aof_pending_bio_fsync"] == "0")
        assert world.client.ask("WAITAOF 1 0 5000") == [1, 0]
        assert "tarted" in str(world.client.ask("BGSAVE"))
        wait_until(lambda: world.client.info("persistence")["rdb_bgsave_in_progress"] == "0")
        assert world.client.info("persistence")["rdb_last_bgsave_status"] == "ok"
    assert world.server.end() == 0
