"""``windhover demo``: a Storm word count with failures, judged by counting."""
