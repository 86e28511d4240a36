"""IDs, listpacks and radix trees: bytes and order, no notion of a command."""
