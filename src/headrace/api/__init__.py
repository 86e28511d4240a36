"""Headrace inside a Python program: databases, streams, groups and consumers as objects."""
