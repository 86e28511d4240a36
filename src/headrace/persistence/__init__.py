"""What outlives the process: snapshots (RDB), the log (AOF), DUMP payloads. Files and formats only."""
