"""Try the headrace that is installed: its compiled modules, the library, and the server with a client.

python scripts/try_installed.py

It needs no compiler and no file of the checkout: it can test a wheel in a fresh environment.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import redis

import headrace

SECONDS_MAX = 60


def import_compiled() -> int:
    """Import every compiled module; return their number."""
    package = Path(headrace.__file__).parent
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    paths = sorted(package.rglob(f"*{suffix}"))
    for path in paths:
        name = ".".join(path.relative_to(package.parent).parts).removesuffix(suffix)
        module = importlib.import_module(name)
        if module.__file__ != str(path):
            raise SystemExit(f"{name} is not compiled: {module.__file__}")
    if not paths:
        raise SystemExit(f"no compiled modules in {package}")
    return len(paths)


def try_library(directory: str) -> None:
    """Add entries, read them through a group, and read them again from the disk."""
    with headrace.open(directory) as db:
        stream = db.stream("orders")
        ids = [stream.add({"item": "pear", "n": n}) for n in range(1000)]
        consumer = stream.group("billing").consumer("ann", block=0)
        assert [delivery.id for delivery in consumer] == ids
    with headrace.open(directory) as db:
        assert [entry.id for entry in db.stream("orders")] == ids


def try_server(directory: str) -> None:
    """Start the program, add and read entries as a client, and stop it by SIGTERM."""
    program = Path(sysconfig.get_path("scripts"), "headrace")
    command = [program, "serve", "--port", "free", "--dir", directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        try:
            line = next((line for line in process.stdout if " ready on " in line), "")
            port = re.search(r" ready on [\w.]+:(\d+)", line)
            assert port, "the server did not start"
            with redis.Redis(port=int(port[1]), decode_responses=True) as client:
                entry_id = client.xadd("orders", {"item": "plum"})
                assert client.xrange("orders") == [(entry_id, {"item": "plum"})]
            process.terminate()
            process.stdout.read()
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()


def main() -> None:
    os.chdir(tempfile.gettempdir())  # not the checkout: `import headrace` is to find what is installed
    number = import_compiled()
    for attempt in (try_library, try_server):
        with tempfile.TemporaryDirectory() as directory:
            attempt(directory)
    print(f"headrace {headrace.__version__}, Python {sys.version.split()[0]}: {number} compiled modules work")


if __name__ == "__main__":
    main()
