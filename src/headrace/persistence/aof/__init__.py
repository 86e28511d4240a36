"""The append-only log: effects as requests, in several files that a manifest lists."""
