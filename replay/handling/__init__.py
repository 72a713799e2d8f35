"""Dead letters, paused inputs and records that stop their readers, handled by a person."""
