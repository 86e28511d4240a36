"""The disk: start-up, snapshots between requests, turning the log on and off, threads of cold storage."""
