"""Run rounds of the fuzzer for a given time, each in its own process.

    python tests/fuzz/rounds.py                            every target, as many executions as the tests do
    python tests/fuzz/rounds.py --hours 1 --only rdb,dump  for so long, with ever new seeds
    python tests/fuzz/rounds.py --grow                     also keep in the corpus what reaches new lines,
                                                           on PYTHONPATH=src, where they can be traced
    python tests/fuzz/rounds.py --replay dump FILE ...     inputs once more, as they are

A child notes each input before it tries it, so that who dies or hangs leaves it behind. What failed is put
where --found says, and one line tells what repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.driver import CORPUS, TOO_MUCH, Failed, Round, Target, attempt, minimised
from fuzz.targets import TARGETS
from headrace.resp import parser as a_parser

HANGS_AFTER_S = 120.0  # with the machine as busy as it may be
ADDRESSES_MAX = 8 << 30  # an allocation beyond that fails
NOTE_BYTES = 1 << 20
KEPT_BYTES_MAX = 300_000  # of the whole corpus


def child(target: Target, options: argparse.Namespace) -> int:
    """A round, in this process; what it came to is its last line."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if build() != "sanitize":  # whose shadow is larger than any memory
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES_MAX, ADDRESSES_MAX))
    with open(options.note, "r+b") as file:
        note = mmap.mmap(file.fileno(), NOTE_BYTES)
    one = Round(target, options.seed, note, options.grow)
    failed, since = None, time.perf_counter()
    try:
        one.run(options.executions)
    except Failed as failure:
        failed = failure.what
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        again = failed != TOO_MUCH  # what was taken once is there the next time
        keep(options.found, target, minimised(target, failure.data, failed) if again else failure.data)
    if options.grow:
        build_tree(target, one.fresh)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    told = {"done": one.number, "failed": failed, "shapes": len(one.seen), "peak_mib": peak}
    told |= {"slowest_ms": round(one.slowest_s * 1000, 1), "seconds": round(time.perf_counter() - since, 1)}
    print(json.dumps(told), flush=True)
    return 0


def parent(target: Target, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """A round in a child, which is watched: what it came to."""
    note = Path(options.found) / f"note-{os.getpid()}"
    note.write_bytes(bytes(NOTE_BYTES))
    words = ["--child", "--only", target.name, "--seed", str(seed), "--executions", str(options.executions)]
    words += ["--note", str(note), "--found", options.found] + ["--grow"] * options.grow
    process = subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True)
    hung = False
    last, since = -1, time.monotonic()
    while process.poll() is None:
        number = int.from_bytes(note.read_bytes()[:8], "little")
        if number != last:
            last, since = number, time.monotonic()
        elif time.monotonic() - since > HANGS_AFTER_S and last:
            hung = True
            process.send_signal(signal.SIGABRT)  # it says where it is
        with_patience(process)
    assert process.stdout is not None
    said = process.stdout.read().strip().rpartition("\n")[2]
    if process.returncode == 0:
        result = json.loads(said)
    else:
        left = note.read_bytes()
        size = int.from_bytes(left[8:16], "little")
        keep(options.found, target, left[16 : 16 + size])
        result = {"done": int.from_bytes(left[:8], "little"), "slowest_ms": 0.0, "peak_mib": 0, "shapes": 0}
        result["failed"] = "hangs" if hung else f"ends with {process.returncode}"
    note.unlink()
    if result["failed"]:
        print(
            f"FAILED {target.name}: {result['failed']}; again: python tests/fuzz/rounds.py "
            f"--only {target.name} --seed {seed} --executions {result['done']}"
        )
    return {"target": target.name, "seed": seed, "build": build(), **result}


def build() -> str:
    """What is tried."""
    if not str(a_parser.__file__).endswith(".so"):
        return "interpreted"
    return "sanitize" if "libasan" in os.environ.get("LD_PRELOAD", "") else "compiled"


def with_patience(process: subprocess.Popen[str]) -> None:
    """Wait a moment."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)


def keep(directory: str, target: Target, data: bytes) -> None:
    """Put what failed where it is found again."""
    path = Path(directory) / f"{target.name}-{hashlib.sha1(data).hexdigest()[:10]}"
    path.write_bytes(data)
    print(f"kept as {path} ({len(data)} bytes): {data[:300]!r}", file=sys.stderr)


def build_tree(target: Target, fresh: list[bytes]) -> None:
    """Add the inputs to the corpus, the short ones first, that reach lines no shorter one does."""
    room = KEPT_BYTES_MAX // len(TARGETS) - sum(path.stat().st_size for path in target.corpus())
    again = Round(target, 0, tracing=True)
    again.run(0)
    for data in sorted(fresh, key=len):
        if len(data) <= room and again.try_one(data):
            room -= len(data)
            (CORPUS / target.name / hashlib.sha1(data).hexdigest()[:10]).write_bytes(data)


def main() -> int:
    """See the head of the file."""
    faulthandler.enable()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(TARGETS), help="targets, with commas between them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--executions", type=int, default=0, help="of a round; 0: those of the tests")
    parser.add_argument("--times", type=int, default=1, help="so many times those of the tests")
    parser.add_argument("--hours", type=float, default=0.0, help="go on with further seeds for so long")
    parser.add_argument("--grow", action="store_true", help="add to the corpus what reaches new lines")
    parser.add_argument("--replay", nargs="+", metavar=("TARGET", "FILE"))
    parser.add_argument("--found", default=".", help="where inputs that fail are put")
    parser.add_argument("--report", help="a file to which what each round came to is added, a line each")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--note", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        target = TARGETS[options.replay[0]]
        for name in options.replay[1:]:
            print(name, sorted(map(str, attempt(target, Path(name).read_bytes())))[:20])
        return 0
    chosen = [TARGETS[name] for name in options.only.split(",")]
    if options.child:
        return child(chosen[0], options)
    end = time.monotonic() + 3600 * options.hours
    asked, failures = options.executions, 0
    while True:
        for target in chosen:
            options.executions = asked or target.executions[build() != "interpreted"] * options.times
            told = parent(target, options.seed, options)
            failures += told["failed"] is not None
            print(json.dumps(told), flush=True)
            if options.report:
                with open(options.report, "a") as report:
                    print(json.dumps(told), file=report)
        options.seed += 1
        if time.monotonic() >= end:
            return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
