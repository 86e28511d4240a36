"""The RDB format: a keyspace as one file of bytes, as Redis writes it."""
