"""Bolts in a child process, so that a tuple that kills or hangs it is found."""
