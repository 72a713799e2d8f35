"""What an operator reads from the topics, and what an operator does to a group."""
