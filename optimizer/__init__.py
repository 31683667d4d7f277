"""The science: queries, windows, edges, costs and sharing plans. Imports neither pyspark nor airflow."""
