"""Servers for the jobs: each test that uses stream_server runs with redis-server and with Headrace."""

from support.server_fixtures import running_server, spark, stream_server  # noqa: F401
