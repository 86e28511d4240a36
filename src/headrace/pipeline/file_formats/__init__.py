"""Readers of files as batches of rows: CSV, JSON lines, Parquet."""
