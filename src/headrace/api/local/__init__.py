"""The backend in this process: an engine behind a lock, its disk, clock and timer thread."""
