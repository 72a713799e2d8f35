"""Rows and their acks in one transaction of a store: what is written, and what a start does; pure."""
