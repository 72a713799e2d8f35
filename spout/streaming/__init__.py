"""The streaming source as Spark sees it, and bolts on DataFrames."""
