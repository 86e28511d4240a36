"""Positions in streams: IDs, how far a stream was read, its state, and whether it was recreated since."""
