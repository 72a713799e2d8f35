"""Runs chosen tests on another broker than the embedded one: another implementation, or another version."""
