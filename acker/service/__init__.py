"""One acker partition: step, commit, restore."""
