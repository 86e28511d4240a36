"""redis-py's own tests, from its source distribution, run against a server.

python tests/clients/redispy_suite.py PORT [TEST...]     # prints what fails
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build"
# What these tests need beside redis-py and pytest; not installed where it would change our own tests.
PACKAGES = ["pytest-asyncio==1.5.0", "pytest-timeout==2.4.0"]
SECONDS_MAX = 1800
# On a busy machine these end the whole run after 5 s: one thread waits for a message while it holds the lock
# that the other one needs. Those of asyncio test the same without threads.
ENDING = ["tests/test_pubsub.py::TestPubSubAutoReconnect"]
TOPICS = ["commands", "scripting", "function", "pubsub", "cache", "lock", "connection", "connection_pool"]
TOPICS += [
    "connect",
    "client",
    "pipeline",
    "monitor",
    "encoding",
    "keyspace_notifications",
    "multiprocessing",
]
Results = dict[str, list[str]]


def pip(*words: str) -> None:
    """Run pip; skip the test if it fails."""
    done = subprocess.run([sys.executable, "-m", "pip", "--quiet", *words], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot get redis-py's tests: {done.stderr[-300:]}")


def fetch() -> Path:
    """Return the folder of redis-py's source distribution, which is downloaded on first use."""
    version = importlib.metadata.version("redis")
    folder = BUILD / "redis-py" / f"redis-{version}"
    if not (folder / "complete").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        pip("install", "--target", str(folder.parent / "packages"), "--upgrade", "--no-deps", *PACKAGES)
        words = ("--no-deps", "--no-binary", "redis", "--dest", str(folder.parent), f"redis=={version}")
        pip("download", *words)
        with tarfile.open(f"{folder}.tar.gz") as archive:
            archive.extractall(folder.parent, filter="data")
        (folder / "complete").touch()
    return folder


def files(folder: Path) -> list[str]:
    """Return the files of tests of the topics, for blocking and asyncio clients."""
    paths = [f"tests/{kind}test_{topic}.py" for topic in TOPICS for kind in ("", "test_asyncio/")]
    return [path for path in paths if (folder / path).exists()]


def start(folder: Path, port: int, results: Path, tests: list[str]) -> subprocess.Popen[str]:
    """Start the tests against the server at a port."""
    url = f"redis://localhost:{port}/0"
    words = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "--timeout=60"]
    words += ["-p", "pytest_asyncio", "-p", "pytest_timeout", "-p", "suite_recorder"]
    words += ["-o", "addopts=", "-o", "log_cli=false", "-m", "not onlycluster and not redismod and not ssl"]
    words += [f"--redis-url={url}", "--redis-mod-url=redis://localhost:1", *tests]
    words += [f"--deselect={test}" for test in ENDING]
    path = os.pathsep.join([str(folder.parent / "packages"), str(HERE)])
    more = {"PYTHONPATH": path, "SUITE_RESULTS": str(results), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    output = results.with_suffix(".log").open("w")
    return subprocess.Popen(words, cwd=folder, env=os.environ | more, text=True, stdout=output, stderr=output)


def finish(process: subprocess.Popen[str], results: Path) -> Results:
    """Wait for the tests; return their outcomes and messages by ID."""
    try:
        process.wait(SECONDS_MAX)
    finally:
        process.kill()
    assert results.exists(), results.with_suffix(".log").read_text()[-3000:]
    found: Results = json.loads(results.read_text())
    return found


def main() -> None:
    folder = fetch()
    results = folder.parent / "results.json"
    results.unlink(missing_ok=True)
    found = finish(start(folder, int(sys.argv[1]), results, sys.argv[2:] or files(folder)), results)
    for name, (outcome, message) in found.items():
        if outcome == "failed":
            print(name, message.strip().splitlines()[-1][:200])
    print(f"{len(found)} tests, {sum(outcome == 'passed' for outcome, _ in found.values())} passed")


if __name__ == "__main__":
    main()
