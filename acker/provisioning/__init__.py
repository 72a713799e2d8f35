"""The topics and rights that an installation needs."""
