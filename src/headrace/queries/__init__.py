"""SQL on streams: their tables and columns, scans by DuckDB, errors. For the library and the jobs."""
