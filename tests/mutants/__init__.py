"""Bugs that are planted in a copy of the tree, one at a time, and the test of each that must fall."""
