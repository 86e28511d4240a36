"""Replication without I/O: the stream of effects, its backlog, and loading and applying a primary's data."""
