"""Which roots of a batch it acks, and what is published so that no other lane acks more of them.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from acker.errors import TrackingError
from acker.identity import root_edges
from acker.root_sets.root_set import RootSet
from spout.publishing.fold import BatchOutcome
from spout.publishing.root_marks import RootMark, RootMarks

ACROSS_BATCHES: Final = (
    RootMark.RELEASED,
    RootMark.HELD,
    RootMark.HELD_ON,
    RootMark.LATE,
    RootMark.LEFT_OPEN,
)
"""What happens only to roots whose rows are in several batches."""


def refuse_held(outcome: BatchOutcome) -> None:
    """Refuse a batch that holds tuples in Spark's state, or releases some.

    Raises `TrackingError`: it does.
    """
    if len(outcome.marks.of(*ACROSS_BATCHES)):
        raise TrackingError(
            "a bolt holds tuples across batches, so the rows of one record are in several of them,"
            " and no transaction has them all; write such a query with spout.sink, by an upsert"
        )


def acked_roots(outcome: BatchOutcome) -> RootSet:
    """Return the roots with a record that neither failed in the batch nor were left open."""
    planned = RootSet.of_runs(outcome.plan.ranges)
    not_acked = outcome.own_marks(RootMark.FAILED, RootMark.OUTSTANDING).roots()
    return planned - RootSet.of_runs(outcome.missing.absent) - not_acked


def without_open(outcome: BatchOutcome) -> BatchOutcome:
    """Return the outcome in which roots that were left open contribute nothing.

    As it is, such a root lacks the edges that are outstanding. If a program in another lane acked
    these later, the root would be ACKED, and its rows are left out here. Without a contribution it
    is never complete, and times out.
    """
    is_open = outcome.marks.kinds == RootMark.OUTSTANDING
    open_marks = outcome.marks.at(is_open)
    if not len(open_marks):
        return outcome
    # a root contributes its root edge XOR what is outstanding: of the whole root edge that is 0
    edges = root_edges(open_marks.sources, open_marks.positions)
    roots = open_marks.sources, open_marks.positions
    nothing_done = RootMarks.of_roots(RootMark.OUTSTANDING, roots, edges)
    marks = RootMarks.together([outcome.marks.at(~is_open), nothing_done])
    return replace(outcome, marks=marks)
