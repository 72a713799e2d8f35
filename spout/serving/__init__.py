"""Guards our HTTP servers: for which hosts they answer, and how many connections they keep, for how long."""
