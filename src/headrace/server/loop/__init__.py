"""The event loop and its connections: sockets, TLS, timers, limits of clients."""
