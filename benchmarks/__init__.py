"""Compare Headrace with redis-server: the same load in alternating order, reported as ratios."""
