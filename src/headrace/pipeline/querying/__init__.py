"""SQL on streams and archives, with DuckDB or Spark."""
