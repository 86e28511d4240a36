"""Codecs: Python values to fields of an entry and back, and arguments of requests."""
