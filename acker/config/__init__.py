"""topics.yaml, as frozen values."""
