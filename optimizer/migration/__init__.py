"""Jobs of other engines to queries of Heddle: Spark SQL and Flink SQL, read by sqlglot and written as text."""
