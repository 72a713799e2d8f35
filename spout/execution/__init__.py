"""Bolts at work in one task."""
