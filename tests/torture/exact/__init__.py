"""A torture whose query writes exactly once: its bolts, its stores, and who judges by the store alone."""
