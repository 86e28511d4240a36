"""What commands talk to: servers, the entries of their streams, Spark."""
