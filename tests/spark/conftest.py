"""Fixtures: real servers on free ports, and a Spark session for each module."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers run this interpreter

from support.server_fixtures import headrace_server, running_server, spark, stream_server  # noqa: F401
