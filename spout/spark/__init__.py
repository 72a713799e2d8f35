"""Spark's private side, behind one door."""
