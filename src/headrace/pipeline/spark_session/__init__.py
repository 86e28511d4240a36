"""Spark sessions of jobs: a local one, faster starts of its JVM, progress of streaming queries."""
