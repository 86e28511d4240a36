"""The one door: a session and a request in, an answer and its effects out."""
