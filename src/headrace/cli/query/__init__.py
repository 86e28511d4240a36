"""How `headrace query` runs Spark and prints rows."""
