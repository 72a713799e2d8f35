"""What the guarantee costs a pipeline in Spark, and a spout without Spark."""
