"""The source: readers, planning, offsets, progress."""
