"""Bolts in a child process, so that a tuple that kills or hangs it is found.

Source: docs/design/protocol.md, section 5.2.
"""
