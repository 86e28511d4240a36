"""The ```console blocks of a page run in their order, and print what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from redis_server import free_port
from waiting import wait_until

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parent.parent
# The pages, and the servers that run already where a page begins: by port, their directory.
PAGES = {"docs/backup.md": {"7777": "data"}}
PORT = re.compile(r"\b77(?:77|78)\b")
ENTRY_ID = re.compile(r"\b\d{13}-\d+\b")


class Reader:
    """Types the commands of a page in an empty directory, with ports of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {port: str(free_port()) for port in ("7777", "7778")}
        self.servers: list[subprocess.Popen[bytes]] = []
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": programs}

    def start(self, words: list[str], port: str) -> None:
        """Start a server, and wait until it is ready."""
        self.servers.append(subprocess.Popen(words, cwd=self.directory, env=self.environment))
        ping = ["redis-cli", "-p", self.ports[port], "PING"]
        wait_until(lambda: subprocess.run(ping, capture_output=True, text=True).stdout.strip() == "PONG")

    def type(self, line: str) -> str:
        """Run a command; return what it prints."""
        used = PORT.search(line)
        line = PORT.sub(lambda found: self.ports[found[0]], line)
        if line.endswith("&"):
            assert used is not None
            self.start(shlex.split(line.removesuffix("&")), used[0])
            return ""
        if "|" not in line:
            line = line.replace("redis-cli ", "redis-cli --no-raw ")  # as in a terminal
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout

    def close(self) -> None:
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            server.wait(30)


def commands(page: str) -> list[tuple[str, str]]:
    """Return the commands of a page, and what the page shows that each prints."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            found.append((line, shown))
    return found


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not installed")
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_print_what_it_shows(page: str, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        for port, directory in PAGES[page].items():
            (tmp_path / directory).mkdir()
            words = ["headrace", "serve", "--port", reader.ports[port], "--dir", directory]
            reader.start(words, port)
        lines = commands(page)
        assert len(lines) > 5
        for line, shown in lines:
            printed = reader.type(line).replace("\r", "")
            assert ENTRY_ID.sub("ID", printed) == ENTRY_ID.sub("ID", shown), line
    finally:
        reader.close()
