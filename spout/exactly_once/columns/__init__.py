"""What the columns of a store's table make of values."""
