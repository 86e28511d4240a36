"""Execution of requests: a session and a request in, a reply and its effects out."""
