"""One file per command of the headrace program."""
