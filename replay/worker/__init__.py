"""From a verdict to a copy or a dead letter, in two transactions."""
