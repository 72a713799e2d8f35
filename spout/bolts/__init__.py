"""What a user derives from and calls: bolts, hooks, groupings, collectors."""
