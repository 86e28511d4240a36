"""The archive job: entries of streams become rows of a Delta table."""
