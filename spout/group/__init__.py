"""Who owns a consumer group, and from where its sources are read."""
