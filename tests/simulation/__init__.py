"""The simulation of the guarantee: the real services on the in-memory Kafka, scheduled by a seed.

A run draws its sizes and faults from a seed, lets ackers, replay workers, planning processes, drivers, a
producer and an operator act one at a time in a random order, breaks whatever the draw allows, then heals and
waits until everything is settled. Checkers watch the logs from outside, one for each rule of
docs/design/protocol.md, section 3. The same seed gives the same events, byte for byte.

Reading order: `options` (what a seed draws), `world` (the scheduler), `truth` (what the logs say),
`checkers` (the rules), `ablations` (each safeguard taken out).
"""
