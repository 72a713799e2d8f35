"""Topologies: how they are built, submitted, paused and ended; and the status of streams."""
