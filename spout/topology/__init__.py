"""A graph of bolts, cut into stages; pure.

Source: docs/design/protocol.md, section 5.2.
"""
