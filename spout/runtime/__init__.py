"""A process: its loop, signals, logs, metrics and children; and readers of topics' last records."""
