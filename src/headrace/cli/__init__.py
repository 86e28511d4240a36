"""The headrace program."""
