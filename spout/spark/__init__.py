"""The private parts of Spark, in one place."""
