"""Makes the examples importable, and the helpers that the tests of Spark have."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "spark")]
