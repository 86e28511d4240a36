"""Commands on strings: whole, in part, and as counters."""
