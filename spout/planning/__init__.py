"""Which records go into the next micro-batch; pure."""
