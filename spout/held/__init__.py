"""Rows that Spark's state holds across micro-batches, and when they are acked."""
