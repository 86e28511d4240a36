"""Commands on keys of any type, and on databases as a whole."""
