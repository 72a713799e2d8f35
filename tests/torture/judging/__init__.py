"""What a run left in the topics, and whether the guarantee held."""
