"""Dead letters and paused inputs, handled by a person."""
