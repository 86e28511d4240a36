"""Options that several commands have: the server, checks of values, completion."""
