"""The disk: start-up, group commit of the log, snapshots between requests."""
