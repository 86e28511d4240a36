"""The files of cold runs: nodes of streams that are on disk instead of in memory."""
