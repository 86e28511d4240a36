"""Replication of a server: sockets, snapshots for replicas, timers."""
