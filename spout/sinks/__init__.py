"""A query's sink, and the end of a micro-batch: what its tasks reported is published."""
