"""SQL on streams by DuckDB: tokens of SQL, scans of streams, errors. For the library and the pipeline."""
