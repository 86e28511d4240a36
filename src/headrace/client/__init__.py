"""Clients of servers: URLs, one server, Sentinels or a cluster, retries, and the errors of servers."""
