"""Replication: the stream of effects, who has which part of it, and how a copy is made and kept."""
