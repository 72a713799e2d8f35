"""What the logs say became of each record, worked out in the plainest way."""
