"""An archive and what is live of its streams, as one table.

The seam of a stream is its highest archived ID: up to it the archive is read, after it the stream. So no
entry comes twice, and none is missed, whether the live stream still has what was archived or not.
"""

from __future__ import annotations

from headrace.spark.archive_files import committed_files, seams

__all__ = ["committed_files", "seams"]
