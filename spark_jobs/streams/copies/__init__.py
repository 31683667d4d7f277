"""Copies of what only Spark reads: every row taken once into a Delta table, which runs read themselves."""
