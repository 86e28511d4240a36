"""The replay job: add past entries to a stream again."""
