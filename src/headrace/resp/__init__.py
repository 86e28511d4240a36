"""Encode and decode the Redis protocol (RESP), without sockets."""
