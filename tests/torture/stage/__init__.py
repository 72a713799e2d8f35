"""The brokers, services, Spark and disk that a run hurts."""
