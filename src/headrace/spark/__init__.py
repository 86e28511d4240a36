"""A Spark data source over streams: batch and streaming, Arrow all the way."""
