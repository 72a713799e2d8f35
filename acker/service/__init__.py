"""One acker partition: step, commit, restore.

Source: docs/design/protocol.md, section 5.3.
"""
