"""Real servers on the test's own directory."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stress.real_server import RealServer

DESCRIPTORS = 8192


@pytest.fixture(scope="session", autouse=True)
def many_descriptors() -> None:
    """Thousands of sockets in one test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., RealServer]]:
    """launch("--maxclients", "3") starts a server; `directory=` another one than the test's."""
    started: list[RealServer] = []

    def run(*arguments: str, directory: Path = tmp_path, **options: object) -> RealServer:
        started.append(RealServer(directory, *arguments, **options))  # type: ignore[arg-type]
        return started[-1]

    yield run
    for server in started:
        server.kill()


@pytest.fixture
def shim(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """shim("name") compiles name.c of this folder: the environment that puts it before the C library."""

    def build(name: str) -> dict[str, str]:
        source = Path(__file__).with_name(f"{name}.c")
        library = tmp_path / f"{name}.so"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return {"LD_PRELOAD": str(library)}

    return build
