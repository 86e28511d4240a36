"""Check what wheels contain: all modules, compiled where they must be, and nothing of the building machine.

python scripts/check_wheel.py WHEEL...
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from build_support.declarations import Package

ROOT = Path(__file__).parents[1]
PLATFORM = re.compile(r"[-.]manylinux_2_\d+_\w+\.whl$")  # of auditwheel: needs no library but that glibc
MACHINE_PATH = re.compile(rb"(?:/root|/home|/tmp|/opt|/usr/local|/project|/io)/[\w.][\w./-]+")
SUFFIXES = {".lua", ".py"}
BYTES_MAX = 20 << 20


def expected() -> tuple[set[str], set[str]]:
    """Return the files that the wheel has besides its metadata, and the stems of its extension modules."""
    source = ROOT / "src"
    paths = (path for path in source.rglob("*") if path.suffix in SUFFIXES)
    files = {str(path.relative_to(source)) for path in paths} | {"headrace/py.typed"}
    return files, {name.replace(".", "/") for name in Package(source / "headrace").compiled()}


def complaints(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    files, compiled = expected()
    found = [] if PLATFORM.search(wheel.name) else ["not a manylinux wheel: repair it with auditwheel"]
    if wheel.stat().st_size > BYTES_MAX:
        found.append(f"{wheel.stat().st_size:,} bytes are more than {BYTES_MAX:,}")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        extensions = {name for name in names if name.endswith(".so")}
        plain = {name for name in names - extensions if ".dist-info/" not in name}
        stems = {name.partition(".")[0] for name in extensions}
        found += [f"missing: {name}" for name in sorted(files - plain)]
        found += [f"not needed: {name}" for name in sorted(plain - files)]
        found += [f"not compiled: {name}" for name in sorted(compiled - stems)]
        found += [f"no module of this version: {name}" for name in sorted(stems - compiled)]
        for name in sorted(extensions):
            paths = sorted(set(MACHINE_PATH.findall(archive.read(name))))
            found += [f"a path of the machine that built it: {name}: {path.decode()}" for path in paths]
    return found


def main() -> int:
    wheels = [Path(word) for word in sys.argv[1:]]
    if not wheels:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = 0
    for wheel in wheels:
        found = complaints(wheel)
        wrong += bool(found)
        for line in found or [f"{wheel.stat().st_size:,} bytes, complete"]:
            print(f"{wheel.name}: {line}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
