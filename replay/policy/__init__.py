"""What becomes of a lost root; pure."""
