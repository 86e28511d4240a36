"""Access control: users, their passwords and rules, and the log of denied requests."""
