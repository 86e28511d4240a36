"""Clients of servers. Each layer uses those above it.

url                                 addresses; passwords hidden in messages
server_errors, connection_errors    error replies and lost connections as exceptions
retrying                            which requests are retried after a lost connection, and for how long
redis_clients, topology             redis-py's clients of one server, Sentinels or a cluster
connection, servers                 connections to the owners of streams; requests about streams
"""
