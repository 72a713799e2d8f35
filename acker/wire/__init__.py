"""What the topics hold: records, their schemas, and what is checked of them."""
