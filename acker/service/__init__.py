"""One acker partition: step, commit, restore.

Words of this room, beside those of the glossary and of `acker.ledger`:

=============  =====================================================================================
step           one round: fetch, apply, count, commit
control topic  ``_ack_init`` or ``_ack_fail``, which must be applied before contributions
stalled        a partition whose control topics do not go on; the others go on without it
paused         a partition whose transaction takes long: nothing of it is read until it is over
sweep          contributions of about a megabyte that are applied together
carried        a cohort whose values are in a bin of State
safe position  the first contribution that a restart reads again
standing       a partition of an ack topic that does not go on
=============  =====================================================================================

Source: docs/design/protocol.md, section 5.3.
"""
