"""The port to Kafka, and the real Kafka behind it."""
