"""Archives of streams as Delta tables: their state, writers, readers, upkeep and watermarks."""
