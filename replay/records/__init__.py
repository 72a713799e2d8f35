"""What a replay worker writes: copies, dead letters, and what waits in `_ack_due`.

Source: docs/design/protocol.md, section 5.4.
"""
