"""Connections of the commands: to a server, to the server of a stream, to Spark."""
