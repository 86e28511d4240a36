"""Commands on keys of any type, and on whole databases."""
