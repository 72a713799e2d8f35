"""Each safeguard taken out, to see that a checker falls."""
