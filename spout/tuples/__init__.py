"""A tuple: its values, its place in the trees of its roots, and why it failed."""
