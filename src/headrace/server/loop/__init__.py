"""The event loop and its connections, with and without TLS, and the limits of their buffers."""
