"""Dead letters, paused inputs and records that stop their readers, handled by a person.

Source: docs/design/protocol.md, section 5.4.
"""
