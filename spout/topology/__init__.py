"""A graph of bolts, cut into stages; pure."""
