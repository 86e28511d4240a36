"""What several jobs use: arguments, the selection of streams, limits of speed, interrupts."""
