"""Who may do what: users, their passwords and rules, and the log of what was denied."""
