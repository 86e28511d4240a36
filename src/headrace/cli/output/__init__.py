"""What several commands print: tables, JSON, entries, progress bars."""
