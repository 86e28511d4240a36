"""Commands on a stream: adding, reading, deleting, trimming, counting, XINFO."""
