"""Build Arrow columns row by row, and encode a range of a stream as an Arrow IPC message."""
