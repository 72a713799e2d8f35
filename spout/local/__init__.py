"""A Kafka and a Spark on this machine."""
