"""Sockets, time and configuration: everything that can fail or wait."""
