"""Kafka in memory, for tests and the simulation."""
