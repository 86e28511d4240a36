"""Output for people: statistics of a server, drawings of streams in memory, escaping."""
