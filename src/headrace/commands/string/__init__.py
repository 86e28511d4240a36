"""Commands on strings: whole strings, parts of them, and counters."""
