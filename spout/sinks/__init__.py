"""A query's sink, and the end of a micro-batch: the reports of its tasks are published."""
