"""Makes the examples importable, and the helpers that the tests of Spark have."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent / "examples"))

from support.server_fixtures import headrace_server, spark  # noqa: F401
