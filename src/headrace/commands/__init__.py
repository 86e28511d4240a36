"""Every command: one row that declares it, one function that runs it."""
