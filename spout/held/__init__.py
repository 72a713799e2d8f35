"""Rows that Spark's state holds across micro-batches, and when they are acked.

Source: docs/design/protocol.md, section 5.2.
"""
