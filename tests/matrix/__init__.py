"""Runs chosen tests beside another version of what Windhover stands on, in an environment of its own."""
