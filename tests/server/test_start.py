"""The program from the start to the end: environment, supervisor, signals, CONFIG REWRITE."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

import headrace
from support.waiting import wait_until

pytestmark = pytest.mark.whole

PROGRAM = "import sys; from headrace.server.main import serve; sys.exit(serve(sys.argv[1:]))"
SECONDS_MAX = 30


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Popen[bytes]]]:
    """launch("--hz", "20", HEADRACE_PORT="free") starts the program in a directory of its own."""
    started: list[Popen[bytes]] = []

    def run(*arguments: str, **variables: str) -> Popen[bytes]:
        here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent)} | variables
        command = [sys.executable, "-c", PROGRAM, *arguments]
        started.append(Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=here))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def asked(port: int, *lines: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as client:
        client.sendall("".join(f"{line}\r\n" for line in lines).encode() + b"QUIT\r\n")
        return b"".join(iter(lambda: client.recv(4096), b""))


@pytest.mark.parametrize("abstract", [False, True])
def test_the_supervisor_hears_when_it_is_ready_and_when_it_ends(launch, tmp_path: Path, abstract: bool):
    name = f"@headrace-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind("\0" + name[1:] if abstract else name)
        supervisor.settimeout(SECONDS_MAX)
        process = launch(NOTIFY_SOCKET=name, HEADRACE_PORT="free", HEADRACE_APPENDONLY="no")
        first = supervisor.recv(1000).decode().splitlines()
        assert first[0] == "READY=1"
        assert first[1].startswith("STATUS=Ready on 127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert supervisor.recv(1000) == b"STOPPING=1"
        assert process.wait(SECONDS_MAX) == 0


def test_sigterm_saves_and_sighup_opens_the_log_anew(launch, tmp_path: Path):
    process = launch(
        *("--logfile", "log", "--log-format", "json", "--port-file", "port", "--save", "1000 1000"),
        HEADRACE_PORT="free",
        HEADRACE_APPENDONLY="no",
    )
    assert json.loads(process.stdout.readline())["message"].startswith("headrace ")
    port = int((tmp_path / "port").read_text())
    assert asked(port, "SET pear 1") == b"+OK\r\n+OK\r\n"
    (tmp_path / "log").rename(tmp_path / "log.1")
    process.send_signal(signal.SIGHUP)
    wait_until((tmp_path / "log").exists)
    assert asked(port, "GET pear") == b"$1\r\n1\r\n+OK\r\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS_MAX) == 0
    assert (tmp_path / "dump.rdb").read_bytes()[:5] == b"REDIS"
    assert '"level": "notice"' in (tmp_path / "log").read_text()


def test_config_rewrite_survives_a_restart(launch, tmp_path: Path):
    (tmp_path / "my.conf").write_text("# mine\nappendonly no\nport free\nport-file port\nhz 20\n")
    process = launch("my.conf")
    process.stdout.readline()
    port = int((tmp_path / "port").read_text())
    lines = ("CONFIG SET hz 30 timeout 9", "ACL SETUSER ann on >pears ~a* +get", "CONFIG REWRITE")
    assert asked(port, *lines) == b"+OK\r\n" * 4
    process.terminate()
    process.wait(SECONDS_MAX)
    text = (tmp_path / "my.conf").read_text()
    assert text.startswith("# mine\nappendonly no\nport free\nport-file port\nhz 30\n\n")
    assert "timeout 9\n" in text and "pears" not in text and "default" not in text
    process = launch("my.conf")
    process.stdout.readline()
    port = int((tmp_path / "port").read_text())
    assert asked(port, "AUTH ann pears", "GET abc", "GET b").startswith(b"+OK\r\n$-1\r\n-NOPERM")
    assert asked(port, "CONFIG GET hz") == b"*2\r\n$2\r\nhz\r\n$2\r\n30\r\n+OK\r\n"


def test_memory_is_on_small_pages_by_default(launch, tmp_path: Path):
    process = launch("--port", "free", "--appendonly", "no")
    process.stdout.readline()
    state = dict(line.split(":\t") for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    assert state.get("THP_enabled", "0") == "0"  # not every system says it


def test_print_config_says_what_would_be_and_does_not_start(launch, tmp_path: Path):
    process = launch("-", "--port", "1234", "--print-config", HEADRACE_REQUIREPASS="pears")
    out, err = process.communicate(b"io-threads 4\nhz 20\n", SECONDS_MAX)
    assert process.returncode == 0
    assert b"# -, line 2\nhz 20\n" in out
    assert b"# the command line\nport 1234\n" in out
    assert b"pears" not in out
    assert err == b"headrace: -, line 1: io-threads: has no effect here\n"
    assert os.listdir(tmp_path) == []


def test_the_unit_and_the_container_start_what_there_is(launch):
    """Every directive that the files in deploy/ use is one, with a value that it takes."""
    deploy = Path(__file__).parents[2] / "deploy"
    unit, container = (deploy / name for name in ("headrace.service", "Containerfile"))
    start = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
    words = start.partition(" serve ")[2].replace("/etc/", f"{deploy}/").split()
    lines = [line for line in container.read_text().splitlines() if line.startswith("ENV ")]
    variables = dict(word.split("=") for line in lines for word in shlex.split(line)[1:])
    assert words and variables
    process = launch(*words, "--print-config", **variables)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, err) == (0, b"")
    asked = [name for name in variables if name != "HEADRACE_DIR"]  # the unit's command line says another
    assert all(f"# the environment, {name}\n".encode() in out for name in asked)
    assert b"\ndir /var/lib/headrace\n" in out
