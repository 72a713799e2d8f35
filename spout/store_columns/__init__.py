"""What the columns of a store's table make of values, and which they would change."""
