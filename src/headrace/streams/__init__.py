"""The stream data type: nodes of packed entries, ranges, trims, groups. It knows nothing of clients."""
