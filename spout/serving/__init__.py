"""What all that answers over HTTP has in common: for which hosts, and how many connections for how long."""
