"""Columns in Arrow form: buffers that grow row by row, and a range of a stream as an Arrow IPC message."""
