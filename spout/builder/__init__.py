"""Topologies: built, submitted, paused and ended, and what they and streams say of themselves."""
