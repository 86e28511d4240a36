"""Every command: a row that declares it, and a function that runs it."""
