"""The Spark session and its workers."""
