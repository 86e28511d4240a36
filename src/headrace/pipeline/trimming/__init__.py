"""The trim job: remove entries that are archived and acknowledged."""
