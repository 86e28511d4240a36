"""Real servers: each test that asks for stream_server runs against redis-server and headrace."""

from support.server_fixtures import running_server, stream_server  # noqa: F401
