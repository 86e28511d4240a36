"""The blocks of commands of a page run in their order, and print what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from headrace.cli.main import program
from headrace.errors import UsageError
from headrace.server.config.config import Config
from support.redis_server import free_port
from support.waiting import wait_until

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parent.parent
RUNNING = {"7777": "data"}  # servers that run already where a page begins: by port, their directory


@dataclass(frozen=True)
class Page:
    """A page, and what its reader has done before."""

    name: str
    servers: dict[str, str] = field(default_factory=dict)
    languages: tuple[str, ...] = ("console",)  # of its blocks that are run here
    before: tuple[str, ...] = ()  # commands


PAGES = [
    Page("README.md"),
    Page("docs/access.md"),
    Page("docs/backup.md"),
    Page("docs/cli.md", RUNNING),
    Page(
        "docs/inside.md",
        {"7777": "."},
        ("sh",),
        (
            "seq 300 | sed 's/.*/XADD orders * item pear count &/' | redis-cli -p 7777",
            "redis-cli -p 7777 SAVE",
        ),
    ),
    Page("docs/pipeline.md", RUNNING),
    Page(
        "docs/rules.md", RUNNING
    ),  # its recipes, in blocks of sh, run in tests/replication/test_recipes_whole.py
    Page("docs/rules.md", RUNNING),
    Page("docs/server.md", languages=("console", "sh")),
    Page("docs/tls.md", languages=("console", "sh")),
]
PORT = re.compile(r"\b77(?:77|78)\b")
ENTRY_ID = re.compile(r"\b\d{13}-\d+\b")
# What differs from run to run; the widths of columns depend on it.
VARYING = {
    ENTRY_ID: "ID",
    re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"): "TIME",
    re.compile(r"\b[\d.]+ (?:ms|s|min)\b"): "DURATION",
    re.compile(r"\b[\d.]+ (?:B|KiB)\b"): "SIZE",
    re.compile(r"^headrace [\d.]+ ready on"): "headrace VERSION ready on",
    re.compile(r", \[::1\]:\d+(?: \(TLS\))?"): "",  # a machine without IPv6 does not show it
    re.compile(r"\(pid \d+\)"): "(pid N)",
    re.compile(r"[\d,]+ (rows|entries)/s"): "N a second",
    re.compile(r"(?:/[\w.-]+)+/archive/"): "DIRECTORY/archive/",
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
        self.environment = os.environ | {
            "PATH": programs,
            "HEADRACE_URL": url,
            "HEADRACE_PORT": self.ports["7777"],
        }
        self.ids: dict[str, str] = {}  # an ID on the page, and the one that was printed instead

    def with_ports(self, text: str) -> str:
        """Return a text of a page with the ports of this test."""
        return PORT.sub(lambda found: self.ports[found[0]], text)

    def start(self, words: list[str]) -> str:
        """Start a server; return its first line, which it prints when it is ready."""
        printed = self.directory / f"printed-by-{len(self.servers)}"
        with printed.open("wb") as file:
            server = subprocess.Popen(words, cwd=self.directory, env=self.environment, stdout=file)
        self.servers.append(server)
        wait_until(lambda: "ready on" in printed.read_text() or server.poll() is not None)
        return printed.read_text()

    def type(self, line: str) -> str:
        """Run a command, or all lines of a script; return what it prints."""
        line = ENTRY_ID.sub(lambda found: self.ids[found[0]], self.with_ports(line))
        if line.endswith("&"):
            return self.start(shlex.split(line.removesuffix("&")))
        if "|" not in line:
            line = line.replace("redis-cli ", "redis-cli --no-raw ")  # as in a terminal
        done = subprocess.run(
            ["bash", "-ec", line],
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


def commands(page: Page) -> list[tuple[str, str | None]]:
    """Return the commands of a page, and what the page shows that each prints: None for a block of sh."""
    found: list[tuple[str, str | None]] = [(line, None) for line in page.before]
    text = (ROOT / page.name).read_text()
    for language, block in re.findall(r"^```(console|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language not in page.languages:
            continue
        if language == "sh":
            found.append((block, None))
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            found.append((line, shown))
    return found


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not installed")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_print_what_it_shows(page: Page, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        for port, directory in page.servers.items():
            (tmp_path / directory).mkdir(exist_ok=True)
            reader.start(["headrace", "serve", "--port", reader.ports[port], "--dir", directory])
        lines = commands(page)
        assert len(lines) > 1
        for line, shown in lines:
            printed = reader.type(line).replace("\r", "")
            if shown is None:
                continue
            if shown or not line.endswith("&"):  # what a server prints is not shown everywhere
                assert constant(printed) == constant(reader.with_ports(shown)), line
            reader.ids |= zip(ENTRY_ID.findall(shown), ENTRY_ID.findall(printed), strict=True)
    finally:
        reader.close()


def other_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the words after `headrace` of the commands in the other blocks of the pages."""
    blocks = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for language, block in blocks.findall(path.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                if language == "console" or not re.match(r"(?:\$ |\*/10 \* \* \* \* )?headrace \w", line):
                    continue
                command: list[str] = []
                for word in [*shlex.split(line.removeprefix("$ "), comments=True), "|"]:
                    if word not in ("|", "&&", "<", ">"):
                        command.append(word)
                        continue
                    if "headrace" in command:
                        yield path.name, command[command.index("headrace") + 1 :]
                    command = []


def test_the_other_commands_of_the_pages_have_options_that_exist() -> None:
    """They need hosts, files or time, so their words are only parsed."""
    found = list(other_commands())
    assert len(found) > 40
    wrong = []
    for page, words in found:
        with program.make_context("headrace", ["--", *words]) as context:
            _, command, rest = program.resolve_command(context, words)
            assert command is not None
            try:
                if words[0] == "serve":
                    is_file = not rest[0].startswith("-")
                    Config().read_arguments([word for word in rest[is_file:] if word != "..."])
                else:
                    command.make_context(words[0], rest, parent=context)
            except (click.ClickException, UsageError) as error:
                text = error.format_message() if isinstance(error, click.ClickException) else str(error)
                if "does not exist" not in text:  # a file
                    wrong.append(f"{page}: headrace {shlex.join(words)}: {text}")
    # cli.md shows what a misspelt option leads to.
    assert [line for line in wrong if "tail --jsn" not in line] == []


def test_the_users_of_the_page_on_security_may_do_what_it_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    settings, users = re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "headrace.conf").write_text(settings)
    (tmp_path / "users.acl").write_text(users)
    reader = Reader(tmp_path)
    try:
        effective = reader.type("headrace serve headrace.conf --print-config")
        assert "aclfile users.acl" in effective and "tls-port 6380" in effective
        reader.start(["headrace", "serve", "--aclfile", "users.acl"])
        assert "NOAUTH" in reader.type("redis-cli -p 7777 XLEN orders:eu")
        shop = "redis-cli -p 7777 --user shop --pass secret --no-auth-warning"
        assert reader.type(f"{shop} XADD orders:eu 1-1 total 3").strip() == '"1-1"'
        assert "NOPERM" in reader.type(f"{shop} XADD invoices 1-1 total 3")
        admin = "redis-cli -p 7777 --user admin --pass password --no-auth-warning"
        assert reader.type(f"{admin} ACL SAVE").strip() == "OK"
        assert (tmp_path / "users.acl").read_text().count("user ") == 3
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
