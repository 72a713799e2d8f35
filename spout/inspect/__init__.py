"""What an operator reads from the topics, and what he does to a group."""
