"""Which roots of a batch it acks, and what is published so that nobody else acks more of them.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from acker.errors import TrackingError
from acker.root_sets.root_set import RootSet
from spout.publishing.fold import BatchOutcome
from spout.publishing.root_marks import RootMark

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
    # only roots whose rows are in several batches have these marks
    if outcome.marks.of(*ACROSS_BATCHES):
        raise TrackingError(
            "a bolt holds tuples across batches, so the rows of one record are in several of them,"
            " and no transaction has them all; write such a query with spout.sink, by an upsert"
        )


def acked_roots(outcome: BatchOutcome) -> RootSet:
    """Return the roots with a record that neither failed in the batch nor were left open."""
    planned = outcome.plan.roots()
    # offsets of the plan at which the log has no record, such as those of markers
    without_record = outcome.missing.absent
    not_acked = outcome.own_marks(RootMark.FAILED, RootMark.OPEN).roots()
    return planned - without_record - not_acked


def without_open(outcome: BatchOutcome) -> BatchOutcome:
    """Return the outcome in which roots that were left open contribute nothing.

    As it is, such a root lacks the edges of what was not acked. If another program acked these
    later, the root would be ACKED, and its rows are left out here. Without a contribution it is
    never complete, and times out.
    """
    marks = outcome.marks
    is_open = marks.kinds == RootMark.OPEN
    if not is_open.any():
        return outcome
    values = np.where(is_open, 0, marks.values)
    return replace(outcome, marks=replace(marks, values=values))
