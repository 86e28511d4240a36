"""Archives in Parquet files: which files count, and how they are read."""
