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
PAGES = {page: {"7777": "data"} for page in ("docs/backup.md", "docs/cli.md", "docs/rules.md")}
PORT = re.compile(r"\b77(?:77|78)\b")
ENTRY_ID = re.compile(r"\b\d{13}-\d+\b")
# What differs from run to run; the widths of columns depend on it.
VARYING = {
    ENTRY_ID: "ID",
    re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"): "TIME",
    re.compile(r"\b[\d.]+ (?:ms|s|min)\b"): "DURATION",
    re.compile(r"\b[\d.]+ (?:B|KiB)\b"): "SIZE",
    re.compile(r" +"): " ",
}


class Reader:
    """Types the commands of a page in an empty directory, with ports of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {port: str(free_port()) for port in ("7777", "7778")}
        self.servers: list[subprocess.Popen[bytes]] = []
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        url = f"redis://127.0.0.1:{self.ports['7777']}"
        self.environment = os.environ | {"PATH": programs, "HEADRACE_URL": url}
        self.ids: dict[str, str] = {}  # an ID on the page, and the one that was printed instead

    def start(self, words: list[str], port: str) -> None:
        """Start a server, and wait until it is ready."""
        self.servers.append(subprocess.Popen(words, cwd=self.directory, env=self.environment))
        ping = ["redis-cli", "-p", self.ports[port], "PING"]
        wait_until(lambda: subprocess.run(ping, capture_output=True, text=True).stdout.strip() == "PONG")

    def type(self, line: str) -> str:
        """Run a command; return what it prints."""
        used = PORT.search(line)
        line = PORT.sub(lambda found: self.ports[found[0]], line)
        line = ENTRY_ID.sub(lambda found: self.ids[found[0]], line)
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


def constant(text: str) -> list[str]:
    """Return the lines of an output, with a word for all that differs from run to run."""
    for pattern, word in VARYING.items():
        text = pattern.sub(word, text)
    return [line.strip() for line in text.splitlines()]


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
            assert constant(printed) == constant(shown), line
            reader.ids |= zip(ENTRY_ID.findall(shown), ENTRY_ID.findall(printed), strict=True)
    finally:
        reader.close()


def test_the_script_of_its_page_runs() -> None:
    [code, *_] = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/scripts.md").read_text(), re.M | re.S)
    done = subprocess.run(
        [sys.executable, "-c", code + "\n    print(next(db.stream('jobs').range()).text)"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "'job': '42'" in done.stdout


def test_the_errors_that_are_explained_are_those_of_the_sources() -> None:
    sources = "".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    sources = re.sub(r'"\s*\n\s*f?"', "", (ROOT / "setup.py").read_text() + sources)
    for row in (ROOT / "docs" / "troubleshooting.md").read_text().split("|---|---|---|\n")[1].splitlines():
        for text in re.findall(r"`([^`]+)`", row.split("|")[1]):
            if text.startswith("Data source"):  # of Spark
                continue
            for part in re.split(r"\.\.\.|'[^']*'", text):
                assert part.strip(" .:;") in sources, (row, part)
