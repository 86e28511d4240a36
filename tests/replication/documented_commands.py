"""Run the recipes of docs/replication.md as a reader does, on the servers of a test.

**Migrate without stopping.** ...      a recipe begins with a bold title
```sh                                  a block is one step; `run` executes the next one
headrace serve ... --replicaof ...     a server, which the test starts on a port of its own
redis-cli -h new -p 6400 ...           a host name becomes the port of a server
```
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from replication.nodes import Node

PASSWORD = "a password"
OPTIONS = ("--requirepass", PASSWORD, "--masterauth", PASSWORD)  # of servers that a recipe presupposes
DOCUMENT = Path(__file__).parents[2] / "docs" / "replication.md"


def blocks(title: str, language: str = "sh") -> list[str]:
    """Return the code blocks of a recipe, or of a chapter."""
    text = DOCUMENT.read_text()
    start = re.search(rf"^(?:\*\*|## ){re.escape(title)}", text, re.MULTILINE)
    assert start is not None, title
    text = text[start.end() :]
    end = re.search(r"^(?:\*\*[A-Z]|## )", text, re.MULTILINE)
    text = text if end is None else text[: end.start()]
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class Recipe:
    """The steps of one recipe."""

    def __init__(self, title: str, hosts: Mapping[str, Node]) -> None:
        """hosts: the servers by their host names in the document."""
        self._steps = iter(blocks(title))
        self._hosts = dict(hosts)

    def start(self, host: str, directory: Path) -> Node:
        """Start the server of the next step."""
        words = shlex.split(next(self._steps).replace("\\\n", "").replace("$PASSWORD", PASSWORD))
        assert words[:3] == ["headrace", "serve", "--port"] and words[4:7] == ["--bind", "*", "--dir"]
        options = words[8:]
        primary = options.index("--replicaof") + 1
        options[primary] = f"127.0.0.1 {self._hosts[options[primary].split()[0]].port}"
        self._hosts[host] = Node("headrace", directory, *options)
        return self._hosts[host]

    def run(self) -> str:
        """Execute the next step, and return its output."""
        script = re.sub(
            r"redis-cli -h (\w+)(?: -p \d+)?",
            lambda found: f"redis-cli -p {self._hosts[found[1]].port}",
            next(self._steps),
        )
        environment = os.environ | {"PASSWORD": PASSWORD, "REDISCLI_AUTH": PASSWORD}
        done = subprocess.run(
            ["sh", "-ec", script], env=environment, stdout=subprocess.PIPE, timeout=400, check=True
        )
        return done.stdout.decode()
