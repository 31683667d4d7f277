"""Jobs of other engines to queries of Heddle: SQL read by sqlglot, definitions in JSON and YAML, written as text."""
