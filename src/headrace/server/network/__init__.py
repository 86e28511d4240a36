"""Sockets that the server listens on or connects by: addresses, accepted clients, TLS."""
