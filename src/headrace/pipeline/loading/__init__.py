"""The load job: the rows of a file, or of a source that Spark reads, become entries of a stream."""
