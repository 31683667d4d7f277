"""Features of labels: the answers of queries as of given moments."""
