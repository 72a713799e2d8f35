"""What a user derives from and calls: bolts, hooks, groupings, collectors.

Source: docs/design/protocol.md, section 5.2.
"""
