"""Out of memory while effects go into the replication stream: it has all of them or none, never a gap."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.replication.primary import Primary
from server.turned_servers import TurnedServers

COMPILED = "HEADRACE_COMPILED" in os.environ

# In a process of its own: each allocation of the call fails once.
APPENDS = """
import _testcapi
from headrace.persistence.aof.encoded_effects import EncodedEffects
from headrace.replication.backlog import Backlog

refused = 0
for nth in range(40):
    encoded, backlog = EncodedEffects(), Backlog(0)
    turn = [(0, [b"SET", b"k", bytes(range(256)) * 1000])]
    encoded.encode(turn)
    view = encoded.unfed_bytes()
    backlog.append(memoryview(bytes(10)))
    _testcapi.set_nomemory(nth, nth + 1)
    try:
        backlog.append_effects(view, encoded)
    except MemoryError:
        refused += 1
        _testcapi.remove_mem_hooks()
        assert backlog.end == 10 and encoded.has_unfed()
        backlog.append_effects(view, encoded)
    finally:
        _testcapi.remove_mem_hooks()
    assert backlog.end == 10 + len(view) and not encoded.has_unfed()
    assert backlog.read(10, len(view)) == bytes(view)
assert 0 < refused < 40, refused
"""


@pytest.mark.skipif(not COMPILED, reason="the interpreter allocates at every step itself")
def test_the_stream_has_all_effects_or_none() -> None:
    pytest.importorskip("_testcapi")
    done = subprocess.run([sys.executable, "-c", APPENDS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_stream_without_memory_ends_and_the_replica_loads_a_new_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failure is made here: there is no way to run out of memory at this very place."""
    servers = TurnedServers()
    try:
        primary, replica = servers.open(tmp_path / "primary"), servers.open(tmp_path / "replica")
        with servers.dial(primary) as client, servers.dial(replica) as reader:
            client.ask("SET k 1")
            reader.ask(f"REPLICAOF 127.0.0.1 {primary.parts.listeners.port}")
            servers.until(lambda: reader.ask("GET k") == b"1")
            real, calls = Primary.feed, []

            def feed(self: Primary, *arguments: object) -> bool:
                if not calls:
                    calls.append(self)
                    raise MemoryError
                return real(self, *arguments)  # type: ignore[arg-type]

            monkeypatch.setattr(Primary, "feed", feed)
            assert client.ask("SET k 2") == "OK"
            assert "the replication stream ends here" in capsys.readouterr().err
            assert client.ask("SET k 3") == "OK"
            servers.until(lambda: reader.ask("GET k") == b"3")
            assert primary.parts.replication.primary_side.full_syncs == 2
            assert client.ask("SET k 4") == "OK"
            servers.until(lambda: reader.ask("GET k") == b"4")
            assert b"SET\r\n$1\r\nk\r\n$1\r\n2" in b"".join(
                path.read_bytes() for path in (tmp_path / "primary").rglob("*.aof")
            )
    finally:
        servers.close()
