"""The command ``windhover``: arguments in, exit code out."""
