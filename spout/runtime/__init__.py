"""A process: its loop, signals, logs, metrics and children, and readers of the last records of topics."""
