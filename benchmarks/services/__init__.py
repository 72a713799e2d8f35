"""What ackers and replay workers can do."""
