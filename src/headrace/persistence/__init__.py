"""Store the data on disk: snapshots (RDB), the log (AOF), DUMP payloads. Files and formats only."""
