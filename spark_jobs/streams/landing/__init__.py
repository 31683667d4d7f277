"""Topics of Kafka become Delta tables that streams are read from."""
