"""Real servers: each test that asks for stream_server runs against redis-server and headrace."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "spark"))

from server_fixtures import running_server, stream_server  # noqa: F401
