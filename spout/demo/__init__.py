"""``windhover demo``: the main job, judged by counting."""
