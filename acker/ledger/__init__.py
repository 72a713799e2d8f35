"""One XOR value for each open root, and one verdict for each root: the ledger, pure.

Words of this room, beside those of the glossary:

==========  ========================================================================================
cohort      the roots of one init in one wire block; they expire together
touched     a root whose deadline was moved, since Spark's state holds a tuple of it
missed      a contribution or fail that met no open root of its session: it came too late, or early
ahead       verdicts that a restart reads before the inits of their roots
pin         the place of the first record that a restart still needs for a cohort
bin         a record of State with the roots of some cohorts and their values: no pin is needed then
lane        one writer's sequence of numbered batches: one query of one session
mark        what makes a record count once: the last batch of its lane
queue       ticks and takes that were read and do not count yet
barrier     where contributions and fails ended when a tick or take was read; behind it, that counts
==========  ========================================================================================
"""
