"""The disk: start-up, group commit of the log, snapshots in a child process."""
