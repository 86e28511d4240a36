"""How many random commands a test runs: few interpreted, more compiled; by `make fuzz` as many as asked."""

from __future__ import annotations

import os

FUZZED = 8  # tests of random commands, each of which runs every seed
TURNS = 2500


def chosen(compiled: tuple[int, int], interpreted: tuple[int, int]) -> tuple[range, int]:
    """Seeds and commands a seed. `make fuzz SEED=s N=n`: seeds from s, n commands over all tests together."""
    if "HEADRACE_FUZZ_N" in os.environ:
        first = int(os.environ.get("HEADRACE_FUZZ_SEED", "1"))
        rounds = max(1, -(-int(os.environ["HEADRACE_FUZZ_N"]) // (TURNS * FUZZED)))
        return range(first, first + rounds), TURNS
    rounds, turns = compiled if "HEADRACE_COMPILED" in os.environ else interpreted
    return range(rounds), turns
