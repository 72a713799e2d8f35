"""Who acts in a run: processes on a watched cluster, an operator, and the scheduler that lets each act."""
