"""Spark's private side, and what differs from version to version, behind one door."""
