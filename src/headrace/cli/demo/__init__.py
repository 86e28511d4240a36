"""The data, the query and the drawings of `headrace demo`."""
