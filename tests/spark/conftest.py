"""Real servers on free ports, and one Spark session a run."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers are to be this interpreter

from server_fixtures import headrace_server, running_server, spark, stream_server  # noqa: F401
