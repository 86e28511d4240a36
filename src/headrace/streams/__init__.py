"""The stream itself: nodes of packed entries, ranges, trims; no notion of a client."""
