"""Servers for the jobs: each test that uses stream_server runs with redis-server and with Headrace."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "spark"))

from server_fixtures import running_server, spark, stream_server  # noqa: F401
