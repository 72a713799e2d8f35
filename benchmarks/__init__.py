"""Benchmarks: programs that put two things side by side on one machine and print their ratio."""
