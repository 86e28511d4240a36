"""What is given to others: the source distribution, wheels, the container file and its health check."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from support.headrace_server import headrace_server

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parent.parent
CONTAINER_FILE = ROOT / "deploy" / "Containerfile"
HEALTHCHECK = ROOT / "deploy" / "healthcheck.py"


def run_setup(directory: Path, *arguments: str) -> None:
    """Run setup.py there, without compiling."""
    environment = os.environ | {"HEADRACE_BUILD": "pure"}
    command = [sys.executable, "setup.py", "-q", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def wheel_of(directory: Path) -> Path:
    run_setup(directory, "bdist_wheel", "--dist-dir", "made")
    (wheel,) = (directory / "made").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def check_wheel() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_wheel", ROOT / "scripts" / "check_wheel.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    directory = tmp_path_factory.mktemp("sdist")
    run_setup(ROOT, "egg_info", "--egg-base", str(directory), "sdist", "--dist-dir", str(directory))
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(directory, filter="data")
    (tree,) = directory.glob("headrace-*/")
    return tree


def sources(root: Path, directory: str) -> set[str]:
    """Return the files of a directory of a checkout, without what programs have left there."""
    left = re.compile(r"__pycache__|\.hypothesis|\.egg-info|\.so$|\.py[cod]$")
    paths = (str(path.relative_to(root)) for path in (root / directory).rglob("*") if path.is_file())
    return {path for path in paths if not left.search(path)}


@pytest.mark.parametrize(
    "directory",
    ["benchmarks", "build_support", "deploy", "docs", "examples", "scripts", "src", "tests", "typings"],
)
def test_the_source_distribution_has_what_the_checkout_has(unpacked: Path, directory: str) -> None:
    assert sources(unpacked, directory) == sources(ROOT, directory)


@pytest.fixture(scope="module")
def wheel(unpacked: Path) -> Path:
    """A wheel of the source distribution, without compiled modules."""
    return wheel_of(unpacked)


def test_a_wheel_of_the_source_distribution_has_every_module(wheel: Path, check_wheel: ModuleType) -> None:
    _, compiled = check_wheel.expected()
    uncompiled = {f"not compiled: {name}" for name in compiled}
    repair = "not a manylinux wheel: repair it with auditwheel"
    assert set(check_wheel.complaints(wheel)) == uncompiled | {repair}


def test_a_wheel_with_files_of_tests_or_paths_of_a_machine_is_reported(
    wheel: Path, check_wheel: ModuleType, tmp_path: Path
) -> None:
    extension = "headrace/streams/node.cpython-313-x86_64-linux-gnu.so"
    other = tmp_path / "headrace-0.1.0-cp313-cp313-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(other, "w") as changed:
        for name in archive.namelist():
            if name != "headrace/limits.py":
                changed.writestr(name, archive.read(name))
        changed.writestr("headrace/test_more.py", "")
        changed.writestr(extension, b"\0/opt/ann/lib\0")
    complaints = [line for line in check_wheel.complaints(other) if not line.startswith("not compiled")]
    assert complaints == [
        "missing: headrace/limits.py",
        "not needed: headrace/test_more.py",
        f"a path of the machine that built it: {extension}: /opt/ann/lib",
    ]


def test_a_build_removes_what_an_earlier_one_left(unpacked: Path, tmp_path: Path) -> None:
    """A compiled module that became plain Python, and one that was deleted."""
    left = [tmp_path / "headrace" / name for name in ("limits.cpython-313-x86_64-linux-gnu.so", "gone.py")]
    (tmp_path / "headrace").mkdir()
    for path in left:
        path.touch()
    run_setup(unpacked, "build_py", "--build-lib", str(tmp_path))
    assert (tmp_path / "headrace" / "limits.py").is_file()
    assert not [path for path in left if path.exists()]


def copied_by_container() -> Iterator[tuple[list[str], str]]:
    """Yield sources and target of what the container file copies from the checkout."""
    for line in CONTAINER_FILE.read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--from"):
            yield words[1:-1], words[-1]


def test_the_container_copies_what_the_build_needs(tmp_path: Path, check_wheel: ModuleType) -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for names, target in copied_by_container():
        assert set(names) <= allowed
        directory = tmp_path / target.lstrip("/")
        directory.mkdir(parents=True, exist_ok=True)
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, directory, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / name, directory)
    complaints = check_wheel.complaints(wheel_of(tmp_path / "src"))
    assert not [line for line in complaints if line.startswith(("missing", "not needed"))]
    assert (tmp_path / "opt/headrace/healthcheck.py").is_file()


def test_the_container_runs_the_program_itself_and_not_as_root() -> None:
    """Without a shell in between, so that SIGTERM reaches the program."""
    lines = CONTAINER_FILE.read_text().splitlines()
    instructions = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    assert instructions["ENTRYPOINT"] == '["/opt/headrace/bin/headrace", "serve"]'
    assert int(instructions["USER"]) > 0
    images = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert len(images) == 2 and len(set(images)) == 1  # one Python, and a stage without the compiler
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", images[0])


def health(port: int) -> tuple[int, str]:
    environment = os.environ | {"HEADRACE_PORT": str(port)}
    done = subprocess.run([sys.executable, HEALTHCHECK], env=environment, capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("options", [[], ["--requirepass", "secret"]], ids=["open", "password"])
def test_a_server_that_executes_commands_is_healthy(options: list[str]) -> None:
    with headrace_server(None, *options) as port:
        assert health(port) == (0, "")


def test_a_server_that_is_loading_or_silent_is_not_healthy() -> None:
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
        environment = os.environ | {"HEADRACE_PORT": str(port)}
        with subprocess.Popen(
            [sys.executable, HEALTHCHECK], env=environment, stderr=subprocess.PIPE
        ) as check:
            client, _ = listener.accept()
            with client:
                client.sendall(b"-LOADING Redis is loading the dataset in memory\r\n")
                _, errors = check.communicate()
        assert check.returncode == 1 and b"LOADING" in errors
    code, errors_text = health(port)
    assert code == 1 and f"no reply at port {port}" in errors_text
