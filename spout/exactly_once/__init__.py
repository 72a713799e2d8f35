"""Rows and their acks in one transaction of a store; pure, except the stores."""
