"""What the tasks of a micro-batch did becomes acks and fails."""
