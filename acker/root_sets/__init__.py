"""Sets of roots, as runs of neighbouring positions; pure."""
