"""A process: its loop, signals, logs, metrics and children, and readers that follow topics."""
