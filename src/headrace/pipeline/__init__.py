"""Jobs between files, streams and Spark: load, archive, query."""
