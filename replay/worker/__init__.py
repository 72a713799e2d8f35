"""From a verdict to a copy or a dead letter, in two transactions.

Source: docs/design/protocol.md, section 5.4.
"""
