"""The driver and its planning processes talk: one connection, and messages that say what holds."""
